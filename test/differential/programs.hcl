variable "image" { type = string }
variable "project" { type = string }

locals {
  # name -> shell script. What they print, how they end and what they leave must not depend on the backend.
  scripts = {
    ends_well       = "exit 0"
    fails           = "exit 1"
    fails_with_255  = "exit 255"
    kills_itself    = "kill -KILL $$"
    terminated      = "kill -TERM $$"
    aborted         = "kill -ABRT $$"
    stdout          = "echo out"
    stderr          = "echo err >&2"
    both            = "echo out; echo err >&2; exit 4"
    binary          = "printf '\\000\\001\\377x\\n'"
    no_newline      = "printf x"
    much            = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done"
    reads_input     = "cat \"$HUTCH_INPUT/in/put.txt\"; ls \"$HUTCH_INPUT\""
    input_is_fixed  = "(echo x > \"$HUTCH_INPUT/new\") 2>/dev/null || echo refused"
    writes_output   = "mkdir \"$HUTCH_OUTPUT/d\"; echo a > \"$HUTCH_OUTPUT/d/a\"; : > \"$HUTCH_OUTPUT/empty\""
    leaves_a_link   = "ln -s /etc/passwd \"$HUTCH_OUTPUT/link\"; mkfifo \"$HUTCH_OUTPUT/fifo\"; echo x > \"$HUTCH_OUTPUT/x\""
    no_streams      = "exec >&- 2>&-; exit 6"
    reads_nothing   = "cat; echo end"
    environment     = "echo \"$A|$B|$HUTCH_WORKSPACE\""
    where           = "pwd; cd /; pwd"
    home            = "cd \"$HOME\" && echo x > file && cat file"
    temporary       = "echo x > /tmp/file && cat /tmp/file && test -w /dev/shm && echo yes"
    no_network      = "tail -n +2 /proc/net/route; tail -n +3 /proc/net/dev | grep -cv lo:"
    left_behind     = "(setsid sleep 1000 &) ; sleep 1000 & echo gone"
    system_is_fixed = "for d in /usr /etc /; do (echo x > $d/hutch-new) 2>/dev/null || echo refused; done"
    privileges      = "grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status"
    descriptors     = "ls /proc/self/fd | head -n 3; ulimit -c"
    devices         = "head -c 4 /dev/zero | wc -c; echo x > /dev/null; test -c /dev/tty && echo tty"
  }
  # Those that work on a project.
  changes = {
    adds            = "echo new > new.txt; mkdir -p deep/er; echo x > deep/er/x"
    changes_content = "echo more >> a.txt"
    deletes         = "rm a.txt; rm -r dir"
    changes_mode    = "chmod 600 a.txt; chmod 700 dir"
    replaces        = "rm -r dir; echo file > dir; rm a.txt; mkdir a.txt; echo x > a.txt/x"
    renames         = "mv a.txt z.txt; mv dir rid"
    links           = "ln -s a.txt link; rm b.txt; ln -s nowhere b.txt"
    restores        = "cp a.txt t; rm a.txt; mv t a.txt; touch b.txt"
  }
}

run "script" {
  for_each = local.scripts
  backend "bwrap" {}
  backend "podman" {
    image = var.image
    pull  = "never"
  }
  command = ["sh", "-c", each.value]
  file "in/put.txt" { content = "put\n" }
  env = { A = "a b", B = "grüße" }
}

run "change" {
  for_each = local.changes
  backend "bwrap" {}
  backend "podman" {
    image = var.image
    pull  = "never"
  }
  command = ["sh", "-c", each.value]
  workspace { source = var.project }
}

run "refused" {
  backend "bwrap" {}
  backend "podman" {
    image = var.image
    pull  = "never"
  }
  command = ["sh", "-c", "for c in 'echo x > new' 'rm a.txt' 'chmod 777 a.txt'; do (eval \"$c\") 2>/dev/null && echo done || echo refused; done"]
  workspace {
    source = var.project
    mode   = "readonly"
  }
}

run "timeout" {
  backend "bwrap" {}
  backend "podman" {
    image = var.image
    pull  = "never"
  }
  command = ["sh", "-c", "echo begun; sleep 1000"]
  limits { timeout = "2s" }
}

run "polite" {
  backend "bwrap" {}
  backend "podman" {
    image = var.image
    pull  = "never"
  }
  # A shell that sees its sleep end first says "Terminated", so its stderr is no part of this.
  command = ["sh", "-c", "exec 2>/dev/null; trap 'echo bye; exit 5' TERM; echo begun; while :; do sleep 0.1; done"]
  limits { timeout = "2s" }
}

run "not_found" {
  backend "bwrap" {}
  backend "podman" {
    image = var.image
    pull  = "never"
  }
  command = ["hutch-no-such-program"]
}

run "not_executable" {
  backend "bwrap" {}
  backend "podman" {
    image = var.image
    pull  = "never"
  }
  command = ["/etc/passwd"]
}

run "arguments" {
  backend "bwrap" {}
  backend "podman" {
    image = var.image
    pull  = "never"
  }
  command = ["printf", "%s|", "a b", "", "*", "$HOME", "grüße", "-x", "'\""]
}
