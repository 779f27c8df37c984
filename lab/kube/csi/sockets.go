package csi

// The sockets for the kubelet: one for CSI and one for the registration of the driver.

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

// sockets holds the two servers in the order in which they were opened.
type sockets []*grpc.Server

// Close stops both servers and removes their socket files.
func (s sockets) Close() {
	for i := len(s) - 1; i >= 0; i-- {
		s[i].Stop()
	}
}

// openSockets opens the CSI socket before the registration socket. The registration socket has a new name at each start,
// and sockets of earlier starts are removed: the kubelet retries a path that failed only after up to two minutes.
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
		return nil, fmt.Errorf("failed to listen on socket %s: %w", socket, err)
	}
	server := grpc.NewServer()
	register(server)
	go func() {
		if err := server.Serve(listener); err != nil {
			klog.ErrorS(err, "server stopped", "socket", socket)
		}
	}()
	return server, nil
}

// registeredFile exists when the kubelet has registered the driver since the start of the machine. `lab up` waits for it.
// It is in /run of the machine, which is empty after each start.
const registeredFile = "/run/lab-csi-registered"

// registrar is the registration service.
type registrar struct {
	registration.UnimplementedRegistrationServer
	endpoint string
}

// GetInfo returns the name and the CSI socket of the driver.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: Driver, Endpoint: r.endpoint, SupportedVersions: []string{driverVersion},
	}, nil
}

// NotifyRegistrationStatus records the result of the registration. The kubelet retries a failed registration itself.
func (r *registrar) NotifyRegistrationStatus(_ context.Context, result *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if result.GetPluginRegistered() {
		klog.InfoS("registered with the kubelet", "endpoint", r.endpoint)
		if err := os.WriteFile(registeredFile, nil, 0o600); err != nil {
			klog.ErrorS(err, "failed to write file", "path", registeredFile)
		}
	} else {
		klog.ErrorS(errors.New(result.GetError()), "registration rejected by the kubelet", "endpoint", r.endpoint)
	}
	return &registration.RegistrationStatusResponse{}, nil
}
