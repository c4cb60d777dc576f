package loopback

import "testing"

func TestListenOnlyHere(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:0", "127.0.0.1", "", "1.2.3.4:x"} {
		if l, err := Listen(addr); err == nil {
			l.Close()
			t.Errorf("it listens on %q", addr)
		}
	}
	for _, addr := range []string{"127.0.0.1:0", "localhost:0"} {
		l, err := Listen(addr)
		if err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		l.Close()
	}
}
