package main

type backendCmd struct {
	List backendListCmd `cmd:"" help:"List the backends that are installed."`
	Test backendTestCmd `cmd:"" help:"Run the conformance suite against a backend."`
	New  backendNewCmd  `cmd:"" help:"Write a complete project for a new backend."`
	Docs backendDocsCmd `cmd:"" help:"Print what a backend's block may hold."`
}

type backendListCmd struct {
	Quiet  bool   `short:"q" help:"Print only the names, without asking the backends anything."`
	Output string `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text or json."`
}

type backendTestCmd struct {
	Backend string `arg:"" name:"backend" help:"Name of an installed backend, or path to a binary." complete:"backend"`
}

type backendNewCmd struct {
	Name string `arg:"" help:"Name of the backend: a to z, 0 to 9 and dashes."`
}

type backendDocsCmd struct {
	Backend string `arg:"" name:"backend" help:"Name of an installed backend, or path to a binary." complete:"backend"`
}

type doctorCmd struct {
	Backends []string `arg:"" optional:"" name:"backend" help:"Backends to check (default: all that are installed)." complete:"backend"`
	Output   string   `short:"o" enum:"text,json" default:"text" placeholder:"FORMAT" help:"text or json."`
}

func (*backendListCmd) Run() error { return errNotImplemented }
func (*backendTestCmd) Run() error { return errNotImplemented }
func (*backendNewCmd) Run() error  { return errNotImplemented }
func (*backendDocsCmd) Run() error { return errNotImplemented }
func (*doctorCmd) Run() error      { return errNotImplemented }
