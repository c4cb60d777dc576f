const ms = require("ms");
const { say } = require("./lib/say");

say("2 days", `${ms("2 days")} ms`);
say("90000 ms", ms(90000, { long: true }));
