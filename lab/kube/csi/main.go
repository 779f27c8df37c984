// Package csi is the CSI driver of the lab. Each node runs one instance; its volumes are sparse files with XFS on loop
// devices. The driver serves the kubelet of its node (publish, unpublish, expand). It also creates, expands and deletes
// the volumes of the claims that the scheduler has placed on its node; there is no central controller.
package csi

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// Driver is the name of this driver in StorageClasses and PersistentVolumes.
const Driver = "disk.lab.evenkeel.dev"

// driverOptions are the command-line options of the driver.
type driverOptions struct {
	node       string
	kubeconfig string
	volumes    string
	kubelet    string
	overcommit int64
}

// Main runs the driver of one node until it receives SIGTERM or SIGINT.
func Main() {
	defer klog.Flush()
	options, err := parseOptions(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "lab-csi: %v\n", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := serve(ctx, options); err != nil {
		klog.ErrorS(err, "driver stopped", "node", options.node)
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

func parseOptions(arguments []string) (driverOptions, error) {
	var options driverOptions
	// A separate flag set: the other programs in this binary register their flags on the common one.
	flags := flag.NewFlagSet("lab-csi", flag.ContinueOnError)
	flags.StringVar(&options.node, "node", "", "name of this node")
	flags.StringVar(&options.kubeconfig, "kubeconfig", "", "path of the kubeconfig of the driver")
	flags.StringVar(&options.volumes, "volumes", "", "directory for the files of the volumes")
	flags.StringVar(&options.kubelet, "kubelet", "/var/lib/kubelet", "directory of the kubelet")
	flags.Int64Var(&options.overcommit, "overcommit", 1, "factor by which volumes may overcommit the free disk space")
	if err := flags.Parse(arguments); err != nil {
		return driverOptions{}, err
	}
	if options.node == "" || options.kubeconfig == "" || options.volumes == "" {
		return driverOptions{}, errors.New("--node, --kubeconfig and --volumes are required")
	}
	if options.overcommit < 1 {
		return driverOptions{}, fmt.Errorf("--overcommit=%d: the factor must be at least 1", options.overcommit)
	}
	return options, nil
}

// serve opens the sockets for the kubelet before it connects to the API server: the kubelet must be able to unmount
// volumes while the API server is unavailable.
func serve(ctx context.Context, options driverOptions) error {
	// mkfs.xfs, losetup and xfs_growfs are in sbin directories, which may be missing in PATH.
	if err := os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin:/usr/bin:/bin"); err != nil {
		return err
	}
	disks, err := OpenDisks(options.volumes, options.overcommit)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", options.kubeconfig)
	if err != nil {
		return fmt.Errorf("failed to load kubeconfig %s: %w", options.kubeconfig, err)
	}
	config.UserAgent = "lab-csi/" + options.node
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.QPS, config.Burst = 50, 100
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("failed to load kubeconfig %s: %w", options.kubeconfig, err)
	}
	sockets, err := openSockets(options.kubelet, NewNode(options.node, disks))
	if err != nil {
		return err
	}
	defer sockets.Close()
	klog.InfoS("serving volumes", "node", options.node, "volumes", filepath.Clean(options.volumes))
	return NewClaims(client, disks, options.node).Run(ctx)
}
