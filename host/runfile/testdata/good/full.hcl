# options: --var rows=250 --var token=hunter2-token HUTCH_VAR_title=report
hutch {
  min_isolation = "namespace"
  required_backends {
    bwrap = { version = ">= 0.1, < 2" }
    acme  = { source = "registry.example.com/acme/hutch-backend-acme", version = "1.2.0" }
  }
}

variable "rows" {
  type        = number
  default     = 100
  description = "rows to generate"
  validation {
    condition     = var.rows > 0 && var.rows == floor(var.rows)
    error_message = "rows must be a whole number above zero."
  }
}

variable "title" {
  type = string
}

variable "token" {
  type      = string
  sensitive = true
}

variable "tags" {
  type = map(object({ name = string, weight = optional(number, 1) }))
  default = {
    a = { name = "first" }
  }
}

locals {
  header = upper(local.title)
  title  = "${var.title} of ${var.rows} rows"
}

run "report" {
  description = "one of everything"
  backend "podman" {
    image = "localhost/python:3.12"
  }
  backend "bwrap" {}

  file "main.py" {
    source = "src/main.py"
  }
  file "config/settings.json" {
    content = jsonencode({ rows = var.rows, tags = var.tags })
    mode    = "0600"
  }
  file "secret.txt" {
    content = "token=${var.token}\n"
  }
  file "empty" {
    content = ""
  }
  file "binary" {
    content_base64 = "AAECAw=="
  }
  files {
    source  = "src"
    include = ["**/*.py", "run.sh"]
    exclude = ["main.py", "**/test_*"]
  }

  language     = "python"
  interpreter  = ["python3", "-u"]
  entrypoint   = "main.py"
  args         = ["--rows", var.rows, "--token=${var.token}", true]
  env          = { TITLE = local.header, TOKEN = var.token, COUNT = 3, GONE = null }
  dependencies = ["requests==2.32.3"]
  min_age      = "3d"
  workdir      = "sub"
  stdin        = "line\n"
  min_isolation = "container"

  workspace {
    source = "src"
    mode   = "readonly"
  }

  mount "/data" { source = "." }
  mount "/home/me" {
    source = "."
    mode   = "writable"
  }
  limits {
    timeout      = "1m30s"
    memory       = "512m"
    cpus         = 1.5
    pids         = 64
    disk         = "1GiB"
    files        = 256
    output       = "1MiB"
    output_total = "64MB"
  }
  network {
    mode = "full"
  }
  outputs = ["*.json", "plots/**/*.png"]
  expect {
    exit_code = [0, 3]
    cause     = "exited"
    within    = "20s"
    outputs   = ["*.json"]
    stdout {
      contains = ["done", var.token]
      excludes = "Traceback"
      matches  = ["^rows: [0-9]+$"]
    }
    stderr {
      empty = true
    }
  }
}
