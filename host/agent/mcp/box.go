package mcp

import (
	"context"

	"github.com/hutch-run/hutch/host/agent/tools"
)

// Arguments of tools that work in a sandbox: which one, and what the tool itself takes.
type (
	listFilesIn struct {
		sandboxIn
		tools.ListFilesIn
	}
	fileIn struct {
		sandboxIn
		tools.FileIn
	}
	readFileIn struct {
		sandboxIn
		tools.ReadFileIn
	}
	writeFileIn struct {
		sandboxIn
		tools.WriteFileIn
	}
	editFileIn struct {
		sandboxIn
		tools.EditFileIn
	}
	applyPatchIn struct {
		sandboxIn
		tools.ApplyPatchIn
	}
	grepIn struct {
		sandboxIn
		tools.GrepIn
	}
	removeFileIn struct {
		sandboxIn
		tools.RemoveFileIn
	}
	execIn struct {
		sandboxIn
		tools.ExecIn
	}
)

// boxTools are the tools for what is in a sandbox.
func (s *Server) boxTools() {
	tool(s, tools.Def{Name: "exec", Title: "Run a command", Description: "Runs a command in a sandbox and waits for it, up to \"wait\"; a longer one goes on as a job, of which job_output says more. " +
		"Its output is the beginning of each stream; \"next\" says where job_output reads on.", Effect: tools.Adds},
		func(ctx context.Context, in execIn) (tools.ExecOut, error) {
			return within(ctx, s, in.Sandbox, in.ExecIn, (*tools.Box).Exec)
		})
	tool(s, tools.Def{Name: "job_output", Title: "Read a job's output", Description: "Reads on in the output of a command, and says whether it runs still. With \"wait\", waits until it has ended, up to that.", Effect: tools.Reads}, s.jobs.Output)
	tool(s, tools.Def{Name: "stop_job", Title: "End a job", Description: "Ends a command and all its processes. One that has ended is left as it is.", Effect: tools.Idempotent}, s.jobs.End)
	tool(s, tools.ListFiles, func(ctx context.Context, in listFilesIn) (tools.ListFilesOut, error) {
		return within(ctx, s, in.Sandbox, in.ListFilesIn, (*tools.Box).ListFiles)
	})
	tool(s, tools.StatFile, func(ctx context.Context, in fileIn) (tools.EntryOut, error) {
		return within(ctx, s, in.Sandbox, in.FileIn, (*tools.Box).StatFile)
	})
	tool(s, tools.ReadFile, func(ctx context.Context, in readFileIn) (tools.ReadFileOut, error) {
		return within(ctx, s, in.Sandbox, in.ReadFileIn, (*tools.Box).ReadFile)
	})
	tool(s, tools.WriteFile, func(ctx context.Context, in writeFileIn) (tools.WriteFileOut, error) {
		return within(ctx, s, in.Sandbox, in.WriteFileIn, (*tools.Box).WriteFile)
	})
	tool(s, tools.EditFile, func(ctx context.Context, in editFileIn) (tools.EditFileOut, error) {
		return within(ctx, s, in.Sandbox, in.EditFileIn, (*tools.Box).EditFile)
	})
	tool(s, tools.ApplyPatch, func(ctx context.Context, in applyPatchIn) (tools.ApplyPatchOut, error) {
		return within(ctx, s, in.Sandbox, in.ApplyPatchIn, (*tools.Box).ApplyPatch)
	})
	tool(s, tools.Grep, func(ctx context.Context, in grepIn) (tools.GrepOut, error) {
		return within(ctx, s, in.Sandbox, in.GrepIn, (*tools.Box).Grep)
	})
	tool(s, tools.RemoveFile, func(ctx context.Context, in removeFileIn) (tools.RemoveFileOut, error) {
		return within(ctx, s, in.Sandbox, in.RemoveFileIn, (*tools.Box).RemoveFile)
	})
}

// within calls a tool in a sandbox that the client may use.
func within[In, Out any](ctx context.Context, s *Server, name string, in In, fn func(*tools.Box, context.Context, In) (Out, error)) (out Out, err error) {
	b, err := s.box(name)
	if err != nil {
		return out, err
	}
	return fn(b, ctx, in)
}
