// Package functions is what run files can call: the functions that users of Terraform and Packer know, under the names
// they know them by.
//
// Where a library has one it is taken from there (go-cty's stdlib, HCL's tryfunc, go-cty-yaml). Every function is
// wrapped: it pays for its arguments from the file's budget before it works, and those that can make much out of little
// are checked for how much that would be. Functions that read files see only the run file's own directory.
package functions
