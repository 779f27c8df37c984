// Package csi is the lab's storage: one driver per node, whose volumes are files with XFS on loop devices. It answers
// the node's kubelet (publish, unpublish, grow) and, without a central controller, makes, grows and deletes the
// volumes of the claims that the scheduler has placed on its node.
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

// Driver is the name that storage classes and volumes know this driver by.
const Driver = "disk.lab.evenkeel.dev"

// settings are what the node's init tells its driver.
type settings struct {
	node       string
	kubeconfig string
	volumes    string
	kubelet    string
	overcommit int64
}

// Main runs the driver of one node until it is told to stop.
func Main() {
	defer klog.Flush()
	chosen, err := settingsFrom(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "lab-csi: %v\n", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := serve(ctx, chosen); err != nil {
		klog.ErrorS(err, "The driver stops", "node", chosen.node)
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

func settingsFrom(arguments []string) (settings, error) {
	var chosen settings
	// A flag set of its own: the programs that share this binary register theirs on the common one.
	flags := flag.NewFlagSet("lab-csi", flag.ContinueOnError)
	flags.StringVar(&chosen.node, "node", "", "name of this node")
	flags.StringVar(&chosen.kubeconfig, "kubeconfig", "", "file with the driver's access to the API server")
	flags.StringVar(&chosen.volumes, "volumes", "", "directory on the host's disk for the volumes' files")
	flags.StringVar(&chosen.kubelet, "kubelet", "/var/lib/kubelet", "the kubelet's directory")
	flags.Int64Var(&chosen.overcommit, "overcommit", 1, "how many times the free space may be promised to volumes")
	if err := flags.Parse(arguments); err != nil {
		return settings{}, err
	}
	if chosen.node == "" || chosen.kubeconfig == "" || chosen.volumes == "" {
		return settings{}, errors.New("--node, --kubeconfig and --volumes are all needed")
	}
	if chosen.overcommit < 1 {
		return settings{}, fmt.Errorf("--overcommit=%d: free space can be promised once or more", chosen.overcommit)
	}
	return chosen, nil
}

// serve answers the kubelet first: pods of an earlier life must be able to unmount even while the API server is away.
func serve(ctx context.Context, chosen settings) error {
	// mkfs.xfs, losetup and xfs_growfs live where an init's PATH may not look.
	if err := os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin:/usr/bin:/bin"); err != nil {
		return err
	}
	disks, err := OpenDisks(chosen.volumes, chosen.overcommit)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", chosen.kubeconfig)
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", chosen.kubeconfig, err)
	}
	config.UserAgent = "lab-csi/" + chosen.node
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.QPS, config.Burst = 50, 100
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", chosen.kubeconfig, err)
	}
	sockets, err := openSockets(chosen.kubelet, NewNode(chosen.node, disks))
	if err != nil {
		return err
	}
	defer sockets.Close()
	klog.InfoS("Serving volumes", "node", chosen.node, "volumes", filepath.Clean(chosen.volumes))
	return NewClaims(client, disks, chosen.node).Run(ctx)
}
