// Package tools are what a model may do in a persistent sandbox: look at its files, change them, search them, run
// commands in it. There is one implementation, which host/agent/mcp serves to clients of its protocol and
// host/agent/cycle gives to the model that it asks.
//
// Arguments are typed and have JSON schemas. Answers are bounded and paged: each page says where the next one begins.
// What goes wrong is an error in words for a model: what, where, and what to do about it. Nothing here touches this
// host but through host/sandbox and host/files; what a command or a model wrote is data and nothing else.
package tools
