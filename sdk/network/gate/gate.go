//go:build linux

package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/hutch-run/hutch/sdk"
	"github.com/hutch-run/hutch/sdk/network"
	"github.com/hutch-run/hutch/sdk/network/intercept"
	"github.com/hutch-run/hutch/sdk/network/netns"
)

// Options say what a gate is about.
type Options struct {
	Network sdk.NetworkMode // filtered or full
	Rules   sdk.NetworkRules

	// Secrets are put into the requests of commands to their hosts: see package intercept. Authority is set with them.
	Secrets   []sdk.Secret
	Authority *sdk.Authority
	Budget    *sdk.Budget // of the requests to hosts of secrets; nil: none

	// Names is a file that gates of the same namespace share, in different processes, so that an address means the same
	// name to all of them; "" when there is only this one. It is made when it is not there.
	Names string

	// Dial and Lookup are what the gate reaches the network with, and Own reports whether this machine has an address;
	// nil means this process's own.
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	Own    func(netip.Addr) bool
}

// Gate serves the network of one command, from [Open] to [Gate.Close].
type Gate struct {
	o       Options
	rules   atomic.Pointer[network.Rules]
	secrets atomic.Pointer[intercept.Interceptor] // nil: there are none
	tcp     *net.TCPListener
	dns     *net.UDPConn
	dnsTCP  *net.TCPListener
	names   names
	record  record
	ctx     context.Context
	stop    context.CancelFunc
	serving sync.WaitGroup // the loops of the listeners
	conns   sync.WaitGroup
	room    chan struct{} // one for each connection that may be open
	closing chan struct{}
	once    sync.Once // of Close
	mu      sync.Mutex
	pairs   map[*pair]bool
	allowed []*allowed // of the commands that are served; guarded by mu
}

// allowed are the rules of one command.
type allowed struct {
	rules []string
	end   func()
}

// pair is one connection of the command with its other end.
type pair struct {
	near *net.TCPConn
	far  net.Conn
	sent bool // the command has nothing more to send
}

const (
	dialTimeout   = 30 * time.Second
	lookupTimeout = 20 * time.Second
	// nearBuffer bounds what waits for the command. Its end is near, so more would only leave the processor's cache.
	nearBuffer = 256 << 10
	// lastTime is how long data that an ended command has written may take to be sent.
	lastTime = 2 * time.Second
)

// Open begins to serve l, whose descriptors are the gate's from now on.
func Open(l netns.Listeners, o Options) (_ *Gate, err error) {
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	if o.Lookup == nil {
		o.Lookup = lookup
	}
	if o.Own == nil {
		o.Own = own
	}
	g := &Gate{o: o, pairs: map[*pair]bool{}, room: make(chan struct{}, mostConnections()), closing: make(chan struct{})}
	defer func() {
		if err != nil {
			g.closeListeners()
			g.names.close()
		}
	}()
	if err := g.prepare(); err != nil {
		l.Close()
		return nil, fmt.Errorf("serve a filtered network: %w", err)
	}
	tcp, err1 := fileOf(l.TCP, net.FileListener)
	dns, err2 := fileOf(l.DNS, net.FilePacketConn)
	dnsTCP, err3 := fileOf(l.DNSTCP, net.FileListener)
	g.tcp, _ = tcp.(*net.TCPListener)
	g.dns, _ = dns.(*net.UDPConn)
	g.dnsTCP, _ = dnsTCP.(*net.TCPListener)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, fmt.Errorf("serve a filtered network: %w", err)
	}
	if g.tcp == nil || g.dns == nil || g.dnsTCP == nil {
		return nil, errors.New("serve a filtered network: a listener has another type")
	}
	g.ctx, g.stop = context.WithCancel(context.Background())
	g.serving.Go(func() { g.accept(g.tcp, g.connection) })
	g.serving.Go(func() { g.accept(g.dnsTCP, g.lookups) })
	g.serving.Go(g.serveDNS)
	return g, nil
}

// prepare reads the options.
func (g *Gate) prepare() (err error) {
	if err := g.parse(nil); err != nil {
		return err
	}
	if len(g.o.Secrets) > 0 {
		if err := g.SetSecrets(g.o.Secrets, g.o.Authority, g.o.Budget); err != nil {
			return err
		}
	}
	return g.names.open(g.o.Names)
}

// parse decides by the rules of the options and of the commands that are served from now on.
func (g *Gate) parse(all []*allowed) error {
	rules := g.o.Rules
	for _, a := range all {
		rules.Allow = slices.Concat(rules.Allow, a.rules)
	}
	r, err := network.Parse(g.o.Network, rules)
	if err == nil {
		r = r.Of(g.o.Own)
		g.rules.Store(&r)
	}
	return err
}

// Serve has the gate hold [sdk.Command.Allow] and Allows, and tell Decided, until the returned function is called or the
// gate is closed. A rule of Allows that cannot be read allows nothing.
func (g *Gate) Serve(c *sdk.Command) (end func(), err error) {
	a, over := &allowed{}, make(chan struct{})
	add := func(rules ...string) error {
		g.mu.Lock()
		defer g.mu.Unlock()
		was := a.rules
		a.rules = slices.Concat(was, rules)
		err := g.parse(g.allowed)
		if err != nil {
			a.rules = was
		}
		return err
	}
	quiet := func() {}
	if c.Decided != nil {
		quiet = g.record.listen(c.Decided)
	}
	var following sync.WaitGroup
	a.end = sync.OnceFunc(func() {
		close(over)
		following.Wait()
		quiet()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.allowed = slices.DeleteFunc(g.allowed, func(o *allowed) bool { return o == a })
		_ = g.parse(g.allowed) // which could be read before
	})
	g.mu.Lock()
	g.allowed = append(g.allowed, a)
	g.mu.Unlock()
	if err := add(c.Allow...); err != nil {
		a.end()
		return nil, err
	}
	following.Go(func() {
		for {
			select {
			case rule, ok := <-c.Allows:
				if !ok {
					return
				}
				_ = add(rule)
			case <-over:
				return
			}
		}
	})
	return a.end, nil
}

// fileOf turns a descriptor, which it closes, into what the net package makes of it.
func fileOf[T any](fd int, make func(*os.File) (T, error)) (T, error) {
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	return make(f)
}

// mostConnections is how many connections may be open at once; more wait in the listener's queue. Each takes two
// sockets and up to two pipes of two ends.
func mostConnections() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		limit.Cur = 1024
	}
	return int(min(max(limit.Cur/8, 16), 16<<10))
}

func (g *Gate) closeListeners() {
	if g.tcp != nil {
		g.tcp.Close()
	}
	if g.dns != nil {
		g.dns.Close()
	}
	if g.dnsTCP != nil {
		g.dnsTCP.Close()
	}
}

// Close ends the gate once the command has ended, and returns what came through it: at most [sdk.MaxTraffic]
// destinations, denied ones first, and the number of those beyond. What the command has written is still sent. Once
// more, or of a nil gate, Close does nothing.
func (g *Gate) Close() ([]sdk.Traffic, int64) {
	if g == nil {
		return nil, 0
	}
	g.once.Do(g.close)
	return g.record.take()
}

// SetSecrets replaces the secrets of connections that begin from now on: for a gate that commands share, of which a
// later one may have newer values. The budget begins again.
func (g *Gate) SetSecrets(secrets []sdk.Secret, authority *sdk.Authority, budget *sdk.Budget) error {
	i, err := intercept.New(secrets, authority, budget)
	if err == nil {
		g.secrets.Store(i)
	}
	return err
}

// Take returns what came through the gate since it was opened or since the last Take, as Close does, while the gate
// goes on: for a gate that commands share. A connection counts once it is over.
func (g *Gate) Take() ([]sdk.Traffic, int64) { return g.record.take() }

func (g *Gate) close() {
	close(g.closing)
	g.closeListeners()
	g.serving.Wait()
	defer time.AfterFunc(lastTime, g.stop).Stop()
	g.mu.Lock()
	for p := range g.pairs {
		if p.sent {
			p.far.Close()
		}
	}
	g.mu.Unlock()
	g.conns.Wait()
	g.stop()
	g.mu.Lock()
	served := slices.Clone(g.allowed)
	g.mu.Unlock()
	for _, a := range served {
		a.end()
	}
	g.names.close()
}

// accept serves the connections of a listener until the gate closes.
func (g *Gate) accept(l *net.TCPListener, serve func(*net.TCPConn)) {
	for g.enter() {
		conn, err := l.AcceptTCP()
		if err != nil {
			g.leave()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // out of descriptors: some will be closed
			continue
		}
		g.conns.Go(func() {
			defer g.leave()
			defer conn.Close()
			defer context.AfterFunc(g.ctx, func() { conn.Close() })()
			serve(conn)
		})
	}
}

// enter waits for room for one more connection; false when the gate closes.
func (g *Gate) enter() bool {
	select {
	case g.room <- struct{}{}:
		return true
	case <-g.closing:
		return false
	}
}

func (g *Gate) leave() { <-g.room }

// connection serves one connection of the command.
func (g *Gate) connection(conn *net.TCPConn) {
	to, err := destination(conn)
	if err != nil || to.Addr().IsLoopback() && !g.rules.Load().Address(to.Addr(), int(to.Port())).Allowed {
		reset(conn) // it asked for the listener itself
		return
	}
	d := dest{port: int(to.Port())}
	var v network.Verdict
	name, isName := g.names.of(to.Addr())
	if isName {
		d.name, v = name, g.rules.Load().Name(name, d.port)
	} else {
		d.name, v = to.Addr().String(), g.rules.Load().Address(to.Addr(), d.port)
	}
	d.allowed, d.rule, d.reason, d.add = v.Allowed, v.Rule, v.Reason, v.Add
	if !v.Allowed {
		g.record.add(d, intercept.Outcome{})
		refuse(conn, v)
		return
	}
	dial := func(ctx context.Context) (net.Conn, error) {
		if isName {
			return g.dialName(ctx, name, d.port)
		}
		return g.o.Dial(ctx, "tcp", to.String())
	}
	if i := g.secrets.Load(); isName && i != nil && i.Covers(name, d.port) {
		var denied atomic.Pointer[deniedError]
		out := i.Serve(g.ctx, conn, name, d.port, func(ctx context.Context) (net.Conn, error) {
			far, err := dial(ctx)
			if err == nil {
				g.record.begin(d)
			}
			if e := (*deniedError)(nil); errors.As(err, &e) {
				denied.Store(e)
			}
			return far, err
		})
		d.reason = out.Reason
		if e := denied.Load(); e != nil {
			d.allowed, d.rule, d.reason, d.add = false, e.Rule, e.Reason, e.Add
		}
		g.record.add(d, out)
		for _, no := range out.Denied {
			g.record.add(dest{name: d.name, port: d.port, rule: no.Rule, reason: no.Reason}, intercept.Outcome{})
		}
		return
	}
	far, err := dial(g.ctx)
	if err != nil {
		var denied *deniedError
		if d.reason = err.Error(); errors.As(err, &denied) {
			d.allowed, d.rule, d.add = false, denied.Rule, denied.Add
			g.record.add(d, intercept.Outcome{})
			refuse(conn, denied.Verdict)
			return
		}
		g.record.add(d, intercept.Outcome{})
		reset(conn)
		return
	}
	defer far.Close()
	g.record.begin(d)
	g.record.add(d, g.copy(conn, far))
}

// copy passes bytes on both ways until both ends have ended. An error of one end is one of the other.
func (g *Gate) copy(near *net.TCPConn, far net.Conn) (out intercept.Outcome) {
	p := &pair{near: near, far: far}
	defer context.AfterFunc(g.ctx, func() { far.Close() })()
	g.mu.Lock()
	g.pairs[p] = true
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		delete(g.pairs, p)
		g.mu.Unlock()
	}()
	_ = near.SetWriteBuffer(nearBuffer)
	var up sync.WaitGroup
	up.Go(func() {
		var err error
		if out.Sent, err = io.Copy(far, near); err != nil {
			reset(far)
			return
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		p.sent = true
		select {
		case <-g.closing: // nobody waits for an answer
			far.Close()
		default:
			closeWrite(far)
		}
	})
	var err error
	if out.Received, err = io.Copy(near, far); err != nil {
		reset(near)
	} else {
		closeWrite(near)
	}
	up.Wait()
	return out
}

func closeWrite(c net.Conn) {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite()
		return
	}
	c.Close()
}

// deniedError says that the rules deny the address that an allowed name has.
type deniedError struct{ network.Verdict }

func (e *deniedError) Error() string { return e.Reason }

// dialName connects to an allowed name.
func (g *Gate) dialName(ctx context.Context, name string, port int) (net.Conn, error) {
	if name == network.Host {
		return g.o.Dial(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	addrs, err := g.addresses(ctx, name)
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, fmt.Errorf("%s has no address", name)
	}
	var last error
	for _, addr := range addrs {
		addr = addr.Unmap()
		if v := g.rules.Load().Reach(name, addr, port); !v.Allowed {
			last = cmp.Or[error](last, &deniedError{v})
			continue
		}
		conn, err := g.o.Dial(ctx, "tcp", netip.AddrPortFrom(addr, uint16(port)).String())
		if err == nil {
			return conn, nil
		}
		last = err
	}
	return nil, last
}

func (g *Gate) addresses(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	return g.o.Lookup(ctx, name)
}

// lookup resolves a name as this host does, IPv4 first.
func lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return cmp.Compare(a.Unmap().BitLen(), b.Unmap().BitLen()) })
	return addrs, err
}

// own asks the kernel each time: addresses can change while a sandbox lives. What cannot be routed is nobody's.
func own(addr netip.Addr) bool {
	routes, err := netlink.RouteGet(addr.AsSlice())
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
		return false
	}
	return err != nil || slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Type == unix.RTN_LOCAL })
}

func destination(conn *net.TCPConn) (to netip.AddrPort, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return to, err
	}
	cerr := raw.Control(func(fd uintptr) { to, err = netns.Destination(int(fd)) })
	return to, errors.Join(cerr, err)
}

// reset closes a connection so that the other end gets an error, not the end of the data.
func reset(conn net.Conn) {
	if c, ok := conn.(interface{ SetLinger(int) error }); ok {
		_ = c.SetLinger(0)
	}
	conn.Close()
}
