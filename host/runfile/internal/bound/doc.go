// Package bound keeps a hostile HCL file from costing more than a moment: CheckTokens refuses what the parser would
// recurse into too deeply, and Guard makes every expression of a parsed file pay for its steps and its results from a
// Budget, because HCL itself stops neither nested loops nor values that double at every step.
package bound
