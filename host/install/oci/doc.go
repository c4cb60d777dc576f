// Package oci keeps releases of backends in OCI registries. It is its own package, linked into a program of its
// own, because a registry client costs every start of a program that links it.
package oci
