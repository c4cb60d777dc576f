package sdk

import "github.com/hutch-run/hutch/sdk/internal/handshake"

// Version is the version of this SDK; it is for messages only.
const Version = "0.1.0"

// ProtocolVersion is the major version of the contract that this SDK speaks. The
// minor ones are distinguished by capabilities.
const ProtocolVersion = handshake.Protocol
