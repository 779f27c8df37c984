package csi

// The CSI identity and node services that the kubelet calls.

import (
	"context"
	"errors"
	"os"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
)

// driverVersion is the reported version; no component depends on its value.
const driverVersion = "1.0.0"

// Node implements the CSI services of one node.
type Node struct {
	spec.UnimplementedIdentityServer
	spec.UnimplementedNodeServer
	name  string
	disks *Disks
}

// NewNode creates the services for the disks of a node.
func NewNode(name string, disks *Disks) *Node { return &Node{name: name, disks: disks} }

// GetPluginInfo returns the name of the driver.
func (n *Node) GetPluginInfo(context.Context, *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return &spec.GetPluginInfoResponse{Name: Driver, VendorVersion: driverVersion}, nil
}

// GetPluginCapabilities reports online expansion. The driver has no controller service.
func (n *Node) GetPluginCapabilities(context.Context, *spec.GetPluginCapabilitiesRequest) (*spec.GetPluginCapabilitiesResponse, error) {
	online := &spec.PluginCapability{Type: &spec.PluginCapability_VolumeExpansion_{
		VolumeExpansion: &spec.PluginCapability_VolumeExpansion{Type: spec.PluginCapability_VolumeExpansion_ONLINE},
	}}
	return &spec.GetPluginCapabilitiesResponse{Capabilities: []*spec.PluginCapability{online}}, nil
}

// Probe reports that the driver is ready.
func (n *Node) Probe(context.Context, *spec.ProbeRequest) (*spec.ProbeResponse, error) {
	return &spec.ProbeResponse{}, nil
}

// NodeGetInfo returns the node name. It reports no topology: volumes have a node affinity with the host name.
func (n *Node) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	return &spec.NodeGetInfoResponse{NodeId: n.name}, nil
}

// NodeGetCapabilities reports volume statistics and expansion; the driver does not stage volumes.
func (n *Node) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	response := &spec.NodeGetCapabilitiesResponse{}
	for _, capability := range []spec.NodeServiceCapability_RPC_Type{
		spec.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		spec.NodeServiceCapability_RPC_EXPAND_VOLUME,
	} {
		response.Capabilities = append(response.Capabilities, &spec.NodeServiceCapability{
			Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: capability}},
		})
	}
	return response, nil
}

// NodePublishVolume mounts a volume at the target path.
func (n *Node) NodePublishVolume(ctx context.Context, request *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	disk, err := n.disk(request.GetVolumeId(), request.GetTargetPath())
	if err != nil {
		return nil, err
	}
	mount := request.GetVolumeCapability().GetMount()
	if mount == nil {
		return nil, status.Error(codes.InvalidArgument, "block volumes are not supported")
	}
	if kind := mount.GetFsType(); kind != "" && kind != "xfs" {
		return nil, status.Errorf(codes.InvalidArgument, "file system %s is not supported, use xfs", kind)
	}
	// The mount option "ro" would apply to the superblock, which all pods with this volume share.
	readOnly := request.GetReadonly() || slices.Contains(mount.GetMountFlags(), "ro")
	options := slices.DeleteFunc(slices.Clone(mount.GetMountFlags()), func(option string) bool { return option == "ro" || option == "" })
	if err := disk.Mount(ctx, request.GetTargetPath(), readOnly, options); err != nil {
		return nil, grpcError("publish", request.GetVolumeId(), err)
	}
	klog.InfoS("volume published", "volume", request.GetVolumeId(), "target", request.GetTargetPath(), "readOnly", readOnly)
	return &spec.NodePublishVolumeResponse{}, nil
}

// NodeUnpublishVolume unmounts a volume from the target path.
func (n *Node) NodeUnpublishVolume(ctx context.Context, request *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	disk, err := n.disk(request.GetVolumeId(), request.GetTargetPath())
	if err != nil {
		return nil, err
	}
	if err := disk.Unmount(ctx, request.GetTargetPath()); err != nil {
		return nil, grpcError("unpublish", request.GetVolumeId(), err)
	}
	klog.InfoS("volume unpublished", "volume", request.GetVolumeId(), "target", request.GetTargetPath())
	return &spec.NodeUnpublishVolumeResponse{}, nil
}

// NodeGetVolumeStats returns the usage of a published volume.
func (n *Node) NodeGetVolumeStats(ctx context.Context, request *spec.NodeGetVolumeStatsRequest) (*spec.NodeGetVolumeStatsResponse, error) {
	disk, err := n.disk(request.GetVolumeId(), request.GetVolumePath())
	if err != nil {
		return nil, err
	}
	usage, err := disk.Usage(ctx, request.GetVolumePath())
	if err != nil {
		return nil, grpcError("read the usage of", request.GetVolumeId(), err)
	}
	return &spec.NodeGetVolumeStatsResponse{Usage: []*spec.VolumeUsage{
		{Unit: spec.VolumeUsage_BYTES, Total: usage.Bytes, Available: usage.BytesFree, Used: usage.Bytes - usage.BytesFree},
		{Unit: spec.VolumeUsage_INODES, Total: usage.Inodes, Available: usage.InodesFree, Used: usage.Inodes - usage.InodesFree},
	}}, nil
}

// NodeExpandVolume expands a volume to the requested size. The reconcile loop has usually done so already.
func (n *Node) NodeExpandVolume(ctx context.Context, request *spec.NodeExpandVolumeRequest) (*spec.NodeExpandVolumeResponse, error) {
	disk, err := n.disk(request.GetVolumeId(), request.GetVolumePath())
	if err != nil {
		return nil, err
	}
	// Without a requested size, the file system is expanded to the size of the file.
	size := int64(0)
	if requested := request.GetCapacityRange().GetRequiredBytes(); requested > 0 {
		size = roundUpSize(requested)
	}
	if err := disk.Grow(ctx, size); err != nil {
		return nil, grpcError("expand", request.GetVolumeId(), err)
	}
	current, err := disk.Size()
	if err != nil {
		return nil, grpcError("expand", request.GetVolumeId(), err)
	}
	return &spec.NodeExpandVolumeResponse{CapacityBytes: current}, nil
}

func (n *Node) disk(volume, path string) (*Disk, error) {
	if path == "" {
		return nil, status.Error(codes.InvalidArgument, "the path is empty")
	}
	disk, err := n.disks.Disk(volume)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return disk, nil
}

// grpcError logs the error and converts it to a gRPC status with the code that the kubelet expects.
func grpcError(operation, volume string, err error) error {
	klog.ErrorS(err, "failed to "+operation+" volume", "volume", volume)
	code := codes.Internal
	var noSpace *NoSpaceError
	var wrong *WrongMountError
	switch {
	case errors.Is(err, ErrNoDisk), errors.Is(err, os.ErrNotExist):
		code = codes.NotFound
	case errors.As(err, &noSpace):
		code = codes.ResourceExhausted
	case errors.As(err, &wrong):
		code = codes.FailedPrecondition
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		code = codes.DeadlineExceeded
	}
	return status.Error(code, err.Error())
}
