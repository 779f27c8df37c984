// Command kube is every Kubernetes program of the lab in one binary: it acts as the component it is named after
// (kube-apiserver, kubelet, kubectl, coredns, …), so that the libraries they share are compiled and linked once.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	"evenkeel.dev/lab/kube/csi"
)

// components maps the name a program is started under to what it then is.
var components = map[string]func(){
	"kube-apiserver":          command(func() *cobra.Command { return apiserver.NewAPIServerCommand() }),
	"kube-controller-manager": command(func() *cobra.Command { return controllermanager.NewControllerManagerCommand() }),
	"kube-scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
	"kube-proxy":              command(func() *cobra.Command { return proxy.NewProxyCommand() }),
	"kubelet":                 command(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"kubectl":                 runKubectl,
	"coredns":                 runCoreDNS,
	"lab-csi":                 csi.Main,
}

func main() {
	name := filepath.Base(os.Args[0])
	run, ok := components[name]
	if !ok {
		names := make([]string, 0, len(components))
		for known := range components {
			names = append(names, known)
		}
		sort.Strings(names)
		fmt.Fprintf(os.Stderr, "%s: start this program under one of these names: %s\n", name, strings.Join(names, ", "))
		os.Exit(2)
	}
	run()
}

func command(build func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(build())) }
}

func runKubectl() {
	// kubectl reads its verbosity before its flags are parsed; a bad value is reported by the parser later.
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
}
