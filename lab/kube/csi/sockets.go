package csi

// The sockets by which the kubelet finds the driver: one for CSI, and one that registers it.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// sockets are the two servers, in the order in which they were opened.
type sockets []*grpc.Server

// Close ends both at once and removes their files.
func (s sockets) Close() {
	for i := len(s) - 1; i >= 0; i-- {
		s[i].Stop()
	}
}

// openSockets opens the CSI socket before the kubelet can hear of it. The registration socket has a new name at each
// start, and no old one is left: a path that once gave no answer is asked again only after up to two minutes.
func openSockets(kubelet string, node *Node) (sockets, error) {
	endpoint := filepath.Join(kubelet, "plugins", Driver, "csi.sock")
	registry := filepath.Join(kubelet, "plugins_registry")
	stale, err := filepath.Glob(filepath.Join(registry, Driver+"-*.sock"))
	if err != nil {
		return nil, err
	}
	for _, socket := range append(stale, endpoint) {
		if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	volumes, err := open(endpoint, func(server *grpc.Server) {
		spec.RegisterIdentityServer(server, node)
		spec.RegisterNodeServer(server, node)
	})
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(registry, fmt.Sprintf("%s-%d.sock", Driver, time.Now().UnixNano()))
	registrar, err := open(socket, func(server *grpc.Server) {
		registration.RegisterRegistrationServer(server, &registrar{endpoint: endpoint})
	})
	if err != nil {
		volumes.Stop()
		return nil, err
	}
	return sockets{volumes, registrar}, nil
}

func open(socket string, register func(*grpc.Server)) (*grpc.Server, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return nil, err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", socket, err)
	}
	server := grpc.NewServer()
	register(server)
	go func() {
		if err := server.Serve(listener); err != nil {
			klog.ErrorS(err, "A socket stopped serving", "socket", socket)
		}
	}()
	return server, nil
}

// registrar tells the kubelet where the CSI socket is, and hears whether it was accepted.
// registeredMark says that this machine's kubelet knows the driver since the machine was powered on.
const registeredMark = "/run/lab-csi-registered"

type registrar struct {
	registration.UnimplementedRegistrationServer
	endpoint string
}

// GetInfo introduces the driver.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: Driver, Endpoint: r.endpoint, SupportedVersions: []string{driverVersion},
	}, nil
}

// NotifyRegistrationStatus only tells: after a refusal the kubelet tries again by itself. The mark is for whoever waits
// until pods with volumes can start: it is in the machine's /run, which is empty at each power-on.
func (r *registrar) NotifyRegistrationStatus(_ context.Context, outcome *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if outcome.GetPluginRegistered() {
		klog.InfoS("Registered with the kubelet", "endpoint", r.endpoint)
		if err := os.WriteFile(registeredMark, nil, 0o600); err != nil {
			klog.ErrorS(err, "Cannot leave a mark", "path", registeredMark)
		}
	} else {
		klog.ErrorS(errors.New(outcome.GetError()), "The kubelet refused the registration", "endpoint", r.endpoint)
	}
	return &registration.RegistrationStatusResponse{}, nil
}
