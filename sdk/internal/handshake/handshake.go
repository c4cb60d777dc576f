// Package handshake holds the words by which host and backend know each other
// before the first call.
package handshake

// What the environment of a backend holds, and what is said at the start.
const (
	// CookieKey and CookieValue tell a backend that a host started it, and not a
	// person. They are no secret.
	CookieKey   = "HUTCH_BACKEND_COOKIE"
	CookieValue = "hutch.backend"

	// Protocol is the major version of the contract.
	Protocol = 1

	// PluginName is the only plugin of a backend, as go-plugin counts.
	PluginName = "backend"

	// EnvLifeline names the descriptor that reports end-of-file when the host dies.
	EnvLifeline = "HUTCH_LIFELINE_FD"

	// EnvLogLevel is the least level that the host wants to hear.
	EnvLogLevel = "HUTCH_LOG_LEVEL"

	// EnvTemp is how the names of temporary directories begin, by which the host's gc knows whose they are.
	EnvTemp = "HUTCH_TEMP"

	// EnvSocketDir is go-plugin's: the private directory of the process, which holds
	// its socket and its FIFOs.
	EnvSocketDir = "PLUGIN_UNIX_SOCKET_DIR"
)

// Environment lists all variables by which a host speaks to a backend, ours and
// go-plugin's. No program that a backend starts may see them.
var Environment = []string{
	CookieKey, EnvLifeline, EnvLogLevel, EnvTemp, EnvSocketDir,
	"PLUGIN_MIN_PORT", "PLUGIN_MAX_PORT", "PLUGIN_PROTOCOL_VERSIONS",
	"PLUGIN_CLIENT_CERT", "PLUGIN_MULTIPLEX_GRPC", "PLUGIN_UNIX_SOCKET_GROUP",
}
