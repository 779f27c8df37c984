package main

import (
	"github.com/coredns/coredns/coremain"

	// Only the plugins that a cluster needs: the default list doubles the build time.
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/template"
)

func runCoreDNS() { coremain.Run() }
