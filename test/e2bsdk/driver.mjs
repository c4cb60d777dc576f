// Drives a local E2B-compatible server with the official SDK, which finds it by E2B_API_KEY, E2B_API_URL and
// E2B_SANDBOX_URL. For every case one line of JSON goes to standard output: its name, and what went wrong. The last line
// says how many there are.
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  AuthenticationError, CommandExitError, FileNotFoundError, FileType, InvalidArgumentError,
  NotEnoughSpaceError, RateLimitError, Sandbox, SandboxError, SandboxNotFoundError, ServiceBusyError, TimeoutError,
} from 'e2b'

const MINUTE = 60_000

// until waits for something to become true, and says what it saw last when it does not.
async function until(what, probe) {
  const end = Date.now() + 2 * MINUTE
  let last
  for (;;) {
    last = await probe()
    if (last === true) return
    if (Date.now() > end) assert.fail(`${what}: not so after two minutes; last seen: ${JSON.stringify(last)}`)
    await sleep(50)
  }
}

// fault makes the next matching request to the server go wrong.
async function fault(body) {
  const res = await fetch(`${process.env.E2B_API_URL}/e2btest/faults`, {
    method: 'POST', headers: { 'X-API-Key': process.env.E2B_API_KEY }, body: JSON.stringify(body),
  })
  assert.equal(res.status, 204)
}

let sandbox // the one that most cases share

const cases = {
  async create() {
    sandbox = await Sandbox.create({ timeoutMs: 10 * MINUTE, metadata: { run: 'shared', odd: 'a b=&%c/ü' }, envs: { GREETING: 'hello' } })
    assert.match(sandbox.sandboxId, /^i[a-z0-9]{20}$/)
    assert.equal(await sandbox.isRunning(), true)
    const info = await sandbox.getInfo()
    assert.equal(info.templateId, 'base')
    assert.equal(info.state, 'running')
    assert.deepEqual(info.metadata, { run: 'shared', odd: 'a b=&%c/ü' })
    assert.deepEqual(info.lifecycle, { onTimeout: 'kill', autoResume: false })
    assert.equal(info.endAt - info.startedAt > 9 * MINUTE, true)
  },

  async 'commands.run'() {
    const seen = { out: '', err: '' }
    const result = await sandbox.commands.run('echo $GREETING $NAME; pwd; whoami; echo oops >&2', {
      envs: { NAME: 'world' }, onStdout: (s) => { seen.out += s }, onStderr: (s) => { seen.err += s },
    })
    assert.equal(result.exitCode, 0)
    assert.equal(result.stdout, 'hello world\n/home/user\nuser\n')
    assert.equal(result.stderr, 'oops\n')
    assert.deepEqual(seen, { out: result.stdout, err: result.stderr })
    assert.equal((await sandbox.commands.run('whoami; pwd', { user: 'root', cwd: '/tmp' })).stdout, 'root\n/tmp\n')
    const big = await sandbox.commands.run('head -c 3000000 /dev/zero | tr "\\0" x')
    assert.equal(big.stdout.length, 3_000_000)
    assert.equal((await sandbox.commands.run('printf "\\303\\274%.0s" $(seq 30000)')).stdout, 'ü'.repeat(30000))
  },

  async 'commands.run: a failure'() {
    await assert.rejects(sandbox.commands.run('echo so; echo bad >&2; exit 7'), (err) => {
      assert(err instanceof CommandExitError)
      assert.deepEqual([err.exitCode, err.stdout, err.stderr, err.error], [7, 'so\n', 'bad\n', 'exit status 7'])
      return true
    })
    await assert.rejects(sandbox.commands.run('true', { cwd: '/nope' }), InvalidArgumentError)
    await assert.rejects(sandbox.commands.run('true', { user: 'nobody-here' }), AuthenticationError)
  },

  async 'commands.run: a timeout'() {
    await assert.rejects(sandbox.commands.run('sleep 600', { timeoutMs: 1000 }), TimeoutError)
    // The leader is dead, and what it has started lives on.
    await until('the shell is gone', async () => {
      const left = await sandbox.commands.list()
      return left.length === 0 || left
    })
    await sandbox.commands.run('pkill -KILL sleep || true')
  },

  async 'commands in the background'() {
    const handle = await sandbox.commands.run('echo $$; exec sleep 600', { background: true, timeoutMs: 0 })
    await until('its output is there', () => handle.stdout === `${handle.pid}\n` || handle.stdout)
    const listed = (await sandbox.commands.list()).find((p) => p.pid === handle.pid)
    assert.equal(listed.cmd, '/bin/bash')
    assert.deepEqual(listed.args, ['-l', '-c', 'echo $$; exec sleep 600'])
    await handle.disconnect()
    const again = await sandbox.commands.connect(handle.pid, { timeoutMs: 0 })
    assert.equal(again.pid, handle.pid)
    assert.equal(await again.kill(), true)
    await assert.rejects(again.wait(), (err) => {
      assert(err instanceof CommandExitError)
      assert.deepEqual([err.exitCode, err.error], [-1, 'signal: killed'])
      return true
    })
    assert.equal(await sandbox.commands.kill(handle.pid), false)
    await assert.rejects(sandbox.commands.connect(999_999), (err) => err.name === 'NotFoundError')
  },

  async 'stdin'() {
    const handle = await sandbox.commands.run('cat; echo end', { background: true, stdin: true })
    await sandbox.commands.sendStdin(handle.pid, 'one\n')
    await handle.sendStdin('two ü\n')
    await sandbox.commands.closeStdin(handle.pid)
    assert.equal((await handle.wait()).stdout, 'one\ntwo ü\nend\n')
  },

  async 'pty'() {
    let screen = ''
    const decoder = new TextDecoder()
    const terminal = await sandbox.pty.create({ cols: 91, rows: 23, timeoutMs: 0, envs: { PS1: '$ ' }, onData: (d) => { screen += decoder.decode(d, { stream: true }) } })
    const type = (text) => sandbox.pty.sendInput(terminal.pid, new TextEncoder().encode(text))
    await type('echo "size $(stty size), $TERM"\n')
    await until('the first size', () => screen.includes('size 23 91, xterm-256color') || screen)
    await sandbox.pty.resize(terminal.pid, { cols: 120, rows: 40 })
    await type('echo "now $(stty size)"\n')
    await until('the second size', () => screen.includes('now 40 120') || screen)
    await type('exit 4\n')
    await assert.rejects(terminal.wait(), (err) => err instanceof CommandExitError && err.exitCode === 4)
    const other = await sandbox.pty.create({ cols: 80, rows: 24, onData() {} })
    assert.equal(await sandbox.pty.kill(other.pid), true)
    await assert.rejects(other.wait(), CommandExitError)
  },

  async 'files.write and read'() {
    const write = (path, data, more) => sandbox.files.write(path, data, { useOctetStream: true, ...more })
    const info = await write('notes/a.txt', 'text ü')
    assert.deepEqual({ name: info.name, type: info.type, path: info.path }, { name: 'a.txt', type: FileType.FILE, path: '/home/user/notes/a.txt' })
    assert.equal(await sandbox.files.read('notes/a.txt'), 'text ü')
    const bytes = new Uint8Array(300_000).map((_, i) => i * 7)
    await write('/tmp/bytes', new Blob([bytes]))
    assert.deepEqual(await sandbox.files.read('/tmp/bytes', { format: 'bytes' }), bytes)
    assert.deepEqual(new Uint8Array(await (await sandbox.files.read('/tmp/bytes', { format: 'blob' })).arrayBuffer()), bytes)
    const parts = []
    for await (const part of await sandbox.files.read('/tmp/bytes', { format: 'stream' })) parts.push(part)
    assert.deepEqual(new Uint8Array(Buffer.concat(parts)), bytes)
    await write('/tmp/empty', '')
    assert.equal(await sandbox.files.read('/tmp/empty'), '')
    await write('octets', bytes.buffer, { user: 'root' })
    assert.equal((await sandbox.commands.run('cat octets', { cwd: '/root', user: 'root' })).stdout.length > 0, true)
  },

  async 'files: errors'() {
    await assert.rejects(sandbox.files.read('missing'), FileNotFoundError)
    await assert.rejects(sandbox.files.read('/tmp'), InvalidArgumentError)
    await assert.rejects(sandbox.files.write('/tmp', 'x', { useOctetStream: true }), InvalidArgumentError)
    await assert.rejects(sandbox.files.write('form', 'x'), (err) => err.message.includes('unsupported content type'))
    await assert.rejects(sandbox.files.read('x', { user: 'nobody-here' }), AuthenticationError)
    await fault({ method: 'POST', path: '/files', status: 507 })
    await assert.rejects(sandbox.files.write('full', 'x', { useOctetStream: true }), NotEnoughSpaceError)
  },

  async 'list'() {
    const others = await Promise.all([1, 2, 3].map((n) => Sandbox.create({ metadata: { group: 'listed', n: `${n}` } })))
    const ids = others.map((o) => o.sandboxId).sort()
    const all = []
    const pages = Sandbox.list({ query: { metadata: { group: 'listed' } }, limit: 2 })
    assert.equal(pages.hasNext, true)
    for (let n = 0; pages.hasNext; n++) {
      const page = await pages.nextItems()
      assert.equal(page.length, n === 0 ? 2 : 1)
      all.push(...page)
    }
    assert.deepEqual(all.map((i) => i.sandboxId).sort(), ids)
    const shared = await Sandbox.list({ query: { metadata: { odd: 'a b=&%c/ü' } } }).nextItems()
    assert.deepEqual(shared.map((i) => i.sandboxId), [sandbox.sandboxId])
    await others[0].pause()
    const states = async (state) => (await Sandbox.list({ query: { metadata: { group: 'listed' }, state } }).nextItems()).map((i) => i.sandboxId)
    assert.deepEqual(await states(['paused']), [others[0].sandboxId])
    assert.equal((await states(['running'])).length, 2)
    for (const o of others) assert.equal(await o.kill(), true)
    assert.deepEqual(await states(['running', 'paused']), [])
  },

  async 'setTimeout'() {
    const short = await Sandbox.create({ timeoutMs: 5 * MINUTE })
    await short.setTimeout(20 * MINUTE)
    const info = await short.getInfo()
    assert(info.endAt - info.startedAt > 19 * MINUTE)
    await Sandbox.setTimeout(short.sandboxId, 1000)
    await until('the sandbox is over', async () => !(await short.isRunning()))
    await assert.rejects(short.getInfo(), SandboxNotFoundError)
    await assert.rejects(short.setTimeout(MINUTE), SandboxNotFoundError)
  },

  async 'pause and connect'() {
    const paused = await Sandbox.create()
    const counter = await paused.commands.run('n=0; while :; do n=$((n+1)); echo $n > new; mv new count; sleep 0.05; done', { background: true, timeoutMs: 0 })
    const count = async () => Number(await paused.files.read('count').catch(() => '0'))
    await until('it counts', async () => (await count()) > 0)
    assert.equal(await paused.pause(), true)
    assert.equal(await paused.pause(), false)
    assert.equal(await paused.isRunning(), false)
    assert.equal((await paused.getInfo()).state, 'paused')
    await assert.rejects(paused.commands.run('true'), SandboxNotFoundError)
    await counter.disconnect()
    const again = await Sandbox.connect(paused.sandboxId, { timeoutMs: 5 * MINUTE })
    assert.equal(again.sandboxId, paused.sandboxId)
    assert.deepEqual((await again.commands.list()).map((p) => p.pid), [counter.pid])
    const before = await count()
    await until('it goes on counting', async () => (await count()) > before)
    // Without memory the files remain, and the processes do not.
    assert.equal(await again.pause({ keepMemory: false }), true)
    await again.connect()
    assert.deepEqual(await again.commands.list(), [])
    assert((await count()) > 0)
    assert.equal(await again.kill(), true)
  },

  async 'a timeout that pauses'() {
    const persistent = await Sandbox.create({ timeoutMs: 5 * MINUTE, lifecycle: { onTimeout: 'pause' } })
    assert.deepEqual((await persistent.getInfo()).lifecycle, { onTimeout: 'pause', autoResume: false })
    await persistent.files.write('kept', 'yes', { useOctetStream: true })
    await persistent.setTimeout(1000)
    await until('it is paused', async () => (await persistent.getInfo()).state === 'paused')
    await persistent.connect()
    assert.equal(await persistent.files.read('kept'), 'yes')
    await persistent.kill()
  },

  async 'errors of the control plane'() {
    await assert.rejects(Sandbox.create({ apiKey: `e2b_${'0'.repeat(40)}` }), AuthenticationError)
    await assert.rejects(Sandbox.create('no-such-template'), (err) => err instanceof SandboxError && err.statusCode === 404 && err.message.includes("template 'no-such-template' not found"))
    await assert.rejects(Sandbox.create({ timeoutMs: 25 * 60 * MINUTE }), (err) => err instanceof SandboxError && err.statusCode === 400)
    await assert.rejects(Sandbox.connect('ixxxxxxxxxxxxxxxxxxxx'), SandboxNotFoundError)
    await assert.rejects(Sandbox.getInfo('ixxxxxxxxxxxxxxxxxxxx'), SandboxNotFoundError)
    assert.equal(await Sandbox.kill('ixxxxxxxxxxxxxxxxxxxx'), false)
    await fault({ method: 'POST', path: '/v2/sandboxes', status: 429 })
    await assert.rejects(Sandbox.create(), RateLimitError)
    await fault({ method: 'POST', path: '/v2/sandboxes', status: 503 })
    await assert.rejects(Sandbox.create(), ServiceBusyError)
    await fault({ path: '/sandboxes/*', status: 429, header: { 'Retry-After': '1' } })
    assert.equal((await sandbox.getInfo()).state, 'running') // the SDK has tried again
    await fault({ path: '/sandboxes/*', delayMs: 30_000 })
    await assert.rejects(sandbox.getInfo({ requestTimeoutMs: 500 }), (err) => err.name === 'TimeoutError')
  },

  async 'a connection that breaks'() {
    await fault({ path: '/process.Process/Start', cutMessages: 1 })
    await assert.rejects(sandbox.commands.run('sleep 1; echo late'), (err) => !(err instanceof CommandExitError))
    await fault({ path: '/process.Process/Start', cutMessages: 1, quiet: true })
    await assert.rejects(sandbox.commands.run('echo never seen'), (err) => !(err instanceof CommandExitError))
    assert.equal((await sandbox.commands.run('echo well')).stdout, 'well\n')
  },

  async 'kill'() {
    const handle = await sandbox.commands.run('sleep 600', { background: true, timeoutMs: 0 })
    const running = handle.wait()
    running.catch(() => {})
    assert.equal(await sandbox.kill(), true)
    assert.equal(await sandbox.kill(), false)
    await assert.rejects(running, TimeoutError) // after the SDK has asked for the sandbox's health
    assert.equal(await sandbox.isRunning(), false)
    await assert.rejects(sandbox.commands.run('true'), SandboxNotFoundError)
    await assert.rejects(sandbox.files.read('x'), TimeoutError)
  },
}

for (const [name, run] of Object.entries(cases)) {
  const line = { case: name }
  try {
    await run()
  } catch (err) {
    line.error = err?.stack ?? String(err)
  }
  console.log(JSON.stringify(line))
}
console.log(JSON.stringify({ cases: Object.keys(cases).length }))
process.exit(0) // connections that are kept alive would hold it up
