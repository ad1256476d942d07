// Guest-proxy forwards requests to a guest cluster as Rancher does, by Go's reverse proxy: it parses what the guest
// cluster answers, and frames it itself.
//
//	guest-proxy <file with certificate and key> <URL of the guest clusters>
//
// It listens on loopback, prints its port, and ends when its standard input ends.
package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
)

func main() {
	pair, err := tls.LoadX509KeyPair(os.Args[1], os.Args[1])
	check(err)
	guests, err := url.Parse(os.Args[2])
	check(err)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	check(err)
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	check(http.Serve(listener, &httputil.ReverseProxy{
		Rewrite: func(request *httputil.ProxyRequest) {
			request.SetURL(guests)
			request.Out.Header.Del("Authorization")
		},
		Transport: &http.Transport{
			TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
			DisableCompression: true,
		},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
	}))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
