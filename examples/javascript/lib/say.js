exports.say = (a, b) => console.log(`${a} is ${b}`);
