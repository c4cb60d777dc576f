# What the block holds while hutch backend test runs; see run.
image = "hutch.test/busybox:1"
pull  = "never"
