# A data pipeline: orders go in, a report in two formats comes out. The program sees only the declared input, and
# what it leaves in $HUTCH_OUTPUT is collected into the record of the run: `hutch show` says where.
#
#   hutch run examples/pipeline.hcl --var currency=USD
#
# needs: bwrap python3
# expect hutch: exit 0
# expect report: stdout "7 orders of 3 customers"
# expect report: output report.json
# expect report: output report.csv
# expect report: no output scratch.tmp

variable "currency" {
  description = "the unit that is written behind every sum"
  type        = string
  default     = "EUR"

  validation {
    condition     = can(regex("^[A-Z]{3}$", var.currency))
    error_message = "A currency is three capital letters, such as EUR."
  }
}

locals {
  title = "Orders in ${var.currency}"
}

run "report" {
  description = "sums up orders by customer"

  backend "bwrap" {}

  files {
    source  = "pipeline"
    include = ["*.py", "*.csv"]
  }

  entrypoint = "report.py"
  env = {
    TITLE    = local.title
    CURRENCY = var.currency
  }

  limits {
    timeout = "30s"
    memory  = "256MiB"
    disk    = "16MiB"
  }

  outputs = ["*.json", "*.csv"]

  expect {
    exit_code = 0
    outputs   = ["report.json", "report.csv"]
  }
}
