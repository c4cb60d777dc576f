// Package podman runs hutch on Podman as its users do, with each overlay strategy, as root and as an ordinary user.
package podman
