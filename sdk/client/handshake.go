package client

import "github.com/hutch-run/hutch/sdk/internal/handshake"

// What a host says to a backend, and expects from it, before the first call.
const (
	CookieKey   = handshake.CookieKey   // variable of the magic cookie
	CookieValue = handshake.CookieValue // and its value
	Protocol    = handshake.Protocol    // major version of the contract
	PluginName  = handshake.PluginName  // name of the only plugin, as go-plugin counts
	EnvLifeline = handshake.EnvLifeline // variable with the number of the descriptor that ends with the host
	EnvTemp     = handshake.EnvTemp     // variable with how the names of temporary directories begin
	EnvLogLevel = handshake.EnvLogLevel // variable with the least level of the log
)
