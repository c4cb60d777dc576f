package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/hutch-run/hutch/cmd/hutch/internal/pages"
	"github.com/hutch-run/hutch/docs"
)

type helpCmd struct {
	Words []string `arg:"" optional:"" name:"command|topic" help:"A command, or a page of the documentation." complete:"help"`
}

// Help is the text below the synopsis.
func (*helpCmd) Help() string {
	return `Without an argument, lists commands and topics. A topic is a page of the documentation, printed as Markdown,
on a terminal through $PAGER if that is set. Where a command has the name of a topic, .md names the topic.

    hutch help audit verify
    hutch help network
    hutch help generate.md`
}

// Run prints the help of a command, else a page.
func (c *helpCmd) Run(ctx context.Context, u *ui, k *kong.Kong) error {
	node := k.Model.Node
	for i, word := range c.Words {
		next := childOf(node, word)
		if next != nil {
			node = next
			continue
		}
		if page, ok := topic(word); ok && len(c.Words) == 1 {
			return u.page(ctx, page)
		}
		known := commandNames(node)
		if i == 0 {
			known = helpWords(node)
		}
		hints := append(unknownWord("", word, "", known), "hutch help lists commands and topics")
		return &hinted{fmt.Errorf("no command or topic %q", strings.Join(c.Words, " ")), hints}
	}
	if err := pages.Help(u.out, node, u.width); err != nil {
		return err
	}
	switch _, ok := topic(node.Name + ".md"); {
	case node == k.Model.Node:
		var rows [][2]string
		for _, t := range topics() {
			text, _ := docs.Pages.ReadFile(t)
			_, title, _ := strings.Cut("\n"+string(text), "\n# ") // a generated page begins with a comment
			title, _, _ = strings.Cut(title, "\n")
			rows = append(rows, [2]string{topicName(t), title})
		}
		return pages.Topics(u.out, rows, u.width)
	case ok && len(c.Words) == 1:
		return u.line("\nhutch help %s.md prints the page about it.", node.Name)
	}
	return nil
}

// topics are the paths of the pages by name. Of two with one name only the first is a topic.
func topics() []string {
	var found []string
	_ = fs.WalkDir(docs.Pages, ".", func(file string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found = append(found, file)
		}
		return err
	})
	slices.SortStableFunc(found, func(a, b string) int { return strings.Compare(topicName(a), topicName(b)) })
	return slices.CompactFunc(found, func(a, b string) bool { return topicName(a) == topicName(b) })
}

func topicName(file string) string { return strings.TrimSuffix(path.Base(file), ".md") }

// helpWords are the names of commands and topics.
func helpWords(app *kong.Node) []string {
	names := commandNames(app)
	for _, t := range topics() {
		if name := topicName(t); childOf(app, name) == nil {
			names = append(names, name)
		} else {
			names = append(names, name+".md")
		}
	}
	return names
}

// topic is the page that a word names: its name, the end of its name (guide), or its path as links in pages have it.
func topic(word string) (string, bool) {
	if page, err := docs.Pages.ReadFile(path.Clean("/" + word)[1:]); err == nil {
		return string(page), true
	}
	name := strings.TrimSuffix(word, ".md")
	all := topics()
	i := slices.IndexFunc(all, func(t string) bool { return topicName(t) == name })
	if i < 0 {
		i = slices.IndexFunc(all, func(t string) bool { return strings.HasSuffix(topicName(t), "-"+name) })
	}
	if i < 0 {
		return "", false
	}
	page, err := docs.Pages.ReadFile(all[i])
	return string(page), err == nil
}

// page prints text, on a terminal through $PAGER.
func (u *ui) page(ctx context.Context, text string) error {
	pager := os.Getenv("PAGER")
	if !u.outTTY || pager == "" {
		return u.line("%s", strings.TrimSuffix(text, "\n"))
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "sh", "-c", pager) // ^C is the pager's
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), u.stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("PAGER: %s: %w", pager, err)
	}
	return nil
}
