# options: APP_TOKEN=hunter2 APP_MODE=fast
locals {
  f = {
    abs          = abs(-3)
    abspath      = basename(abspath("src/main.py"))
    alltrue      = [alltrue([]), alltrue([true, false]), anytrue([true, false])]
    base64       = base64decode(base64encode("héllo"))
    can          = [can(tonumber("x")), can(1)]
    chunk        = chunklist(range(5), 2)
    coalesce     = coalesce(null, "b")
    csv          = csvdecode("a,b\n1,2\n")
    dirname      = dirname("a/b/c.txt")
    env          = [env("APP_MODE"), env("APP_NOTHING"), env("APP_NOTHING", "default")]
    file         = file("src/main.py")
    module       = file("${path.module}/src/main.py")
    fileexists   = [fileexists("src/main.py"), fileexists("src/none.py")]
    filebase64   = filebase64("src/run.sh")
    fileset      = fileset("src", "**/*.py")
    filesha256   = filesha256("src/main.py") == sha256(file("src/main.py"))
    format       = format("%05.1f|%-5s|%q", 3.14159, "ab", "x")
    formatlist   = formatlist("%s-%d", ["a", "b"], [1, 2])
    index        = index(["a", "b"], "b")
    indent       = indent(2, "a\nb")
    issensitive  = [issensitive(env("APP_TOKEN")), issensitive(env("APP_MODE"))]
    join         = join("-", ["a", "b"])
    json         = jsondecode("{\"a\": [1, null, true]}")
    length       = [length("日本語"), length([1, 2]), length({ a = 1 }), length(toset(["x"]))]
    lookup       = [lookup({ a = 1 }, "a", 2), lookup({ a = 1 }, "b", 2)]
    max          = max(1, 5, 3)
    merge        = merge({ a = 1 }, { b = 2 }, { a = 3 })
    one          = [one([]), one(["x"])]
    regex        = regex("([a-z]+)-([0-9]+)", "abc-123")
    replace      = [replace("a.b.c", ".", "-"), replace("a1b22", "/[0-9]+/", "#")]
    sha          = substr(sha256("x"), 0, 8)
    sort         = sort(["b", "a"])
    split        = split(",", "a,b")
    starts       = [startswith("abc", "ab"), endswith("abc", "bc"), strcontains("abc", "b")]
    sum          = sum([1, 2, 3.5])
    template     = templatefile("src/page.tmpl", { name = "x", items = ["a", "b"] })
    title        = title("hello world")
    trim         = trimspace("  x ")
    try          = try(local.f0.missing, "fallback")
    url          = urldecode(urlencode("a b&c"))
    uuid         = length(uuid())
    values       = values({ b = 2, a = 1 })
    yaml         = yamldecode("a: &x [1, 2]\nb: *x\n")
    yamlencode   = yamlencode({ a = 1 })
    zipmap       = zipmap(["a", "b"], [1, 2])
    time         = timeadd("2024-01-01T00:00:00Z", "24h")
    formatdate   = formatdate("YYYY-MM-DD", "2024-02-03T00:00:00Z")
    nonsensitive = nonsensitive(length(env("APP_TOKEN")))
  }
  f0 = {}
}

run "functions" {
  command = ["cat"]
  stdin   = jsonencode(local.f)
}

run "secrets" {
  command = ["cat", env("APP_TOKEN"), "x-${sensitive("y")}"]
  env     = sensitive({ A = "b" })
  stdin   = sensitive("z")
}
