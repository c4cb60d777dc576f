package daemon

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
)

// forward passes a request on to a port of the sandbox itself, whose network is reachable from inside only.
func forward(w http.ResponseWriter, r *http.Request, port string) {
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", port)})
			p.Out.Host = p.In.Host
			p.Out.Header.Del(HostHeader)
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, _ error) {
			n, _ := strconv.Atoi(port)
			writeJSON(w, http.StatusBadGateway, map[string]any{
				"sandboxId": r.Header.Get("E2b-Sandbox-Id"), "message": "The sandbox is running but port is not open", "port": n, "code": http.StatusBadGateway,
			})
		},
	}
	proxy.ServeHTTP(w, r)
}
