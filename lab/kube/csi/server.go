package csi

// The CSI services that the kubelet calls: who the driver is, and what it does with the node's mounts.

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

// driverVersion is told to whoever asks; nothing depends on it.
const driverVersion = "1.0.0"

// Node answers for one node.
type Node struct {
	spec.UnimplementedIdentityServer
	spec.UnimplementedNodeServer
	name  string
	disks *Disks
}

// NewNode serves a node's disks.
func NewNode(name string, disks *Disks) *Node { return &Node{name: name, disks: disks} }

// GetPluginInfo tells the driver's name.
func (n *Node) GetPluginInfo(context.Context, *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return &spec.GetPluginInfoResponse{Name: Driver, VendorVersion: driverVersion}, nil
}

// GetPluginCapabilities tells that volumes grow while in use; there is no controller service to announce.
func (n *Node) GetPluginCapabilities(context.Context, *spec.GetPluginCapabilitiesRequest) (*spec.GetPluginCapabilitiesResponse, error) {
	online := &spec.PluginCapability{Type: &spec.PluginCapability_VolumeExpansion_{
		VolumeExpansion: &spec.PluginCapability_VolumeExpansion{Type: spec.PluginCapability_VolumeExpansion_ONLINE},
	}}
	return &spec.GetPluginCapabilitiesResponse{Capabilities: []*spec.PluginCapability{online}}, nil
}

// Probe is answered by answering.
func (n *Node) Probe(context.Context, *spec.ProbeRequest) (*spec.ProbeResponse, error) {
	return &spec.ProbeResponse{}, nil
}

// NodeGetInfo names the node. No topology: volumes carry their node's host name in their affinity.
func (n *Node) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	return &spec.NodeGetInfoResponse{NodeId: n.name}, nil
}

// NodeGetCapabilities announces statistics and growth; no staging.
func (n *Node) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	answer := &spec.NodeGetCapabilitiesResponse{}
	for _, able := range []spec.NodeServiceCapability_RPC_Type{
		spec.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		spec.NodeServiceCapability_RPC_EXPAND_VOLUME,
	} {
		answer.Capabilities = append(answer.Capabilities, &spec.NodeServiceCapability{
			Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: able}},
		})
	}
	return answer, nil
}

// NodePublishVolume mounts a volume where a pod will find it.
func (n *Node) NodePublishVolume(ctx context.Context, request *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	disk, err := n.disk(request.GetVolumeId(), request.GetTargetPath())
	if err != nil {
		return nil, err
	}
	mount := request.GetVolumeCapability().GetMount()
	if mount == nil {
		return nil, status.Error(codes.InvalidArgument, "only volumes with a file system can be published, not block devices")
	}
	if kind := mount.GetFsType(); kind != "" && kind != "xfs" {
		return nil, status.Errorf(codes.InvalidArgument, "the file system can only be xfs, not %s", kind)
	}
	// "ro" as an option would be of the superblock, and so of every other pod on the volume.
	readOnly := request.GetReadonly() || slices.Contains(mount.GetMountFlags(), "ro")
	options := slices.DeleteFunc(slices.Clone(mount.GetMountFlags()), func(option string) bool { return option == "ro" || option == "" })
	if err := disk.Mount(ctx, request.GetTargetPath(), readOnly, options); err != nil {
		return nil, refused("publish", request.GetVolumeId(), err)
	}
	klog.InfoS("Published", "volume", request.GetVolumeId(), "target", request.GetTargetPath(), "readOnly", readOnly)
	return &spec.NodePublishVolumeResponse{}, nil
}

// NodeUnpublishVolume unmounts it again.
func (n *Node) NodeUnpublishVolume(ctx context.Context, request *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	disk, err := n.disk(request.GetVolumeId(), request.GetTargetPath())
	if err != nil {
		return nil, err
	}
	if err := disk.Unmount(ctx, request.GetTargetPath()); err != nil {
		return nil, refused("unpublish", request.GetVolumeId(), err)
	}
	klog.InfoS("Unpublished", "volume", request.GetVolumeId(), "target", request.GetTargetPath())
	return &spec.NodeUnpublishVolumeResponse{}, nil
}

// NodeGetVolumeStats measures a published volume.
func (n *Node) NodeGetVolumeStats(ctx context.Context, request *spec.NodeGetVolumeStatsRequest) (*spec.NodeGetVolumeStatsResponse, error) {
	disk, err := n.disk(request.GetVolumeId(), request.GetVolumePath())
	if err != nil {
		return nil, err
	}
	usage, err := disk.Usage(ctx, request.GetVolumePath())
	if err != nil {
		return nil, refused("measure", request.GetVolumeId(), err)
	}
	return &spec.NodeGetVolumeStatsResponse{Usage: []*spec.VolumeUsage{
		{Unit: spec.VolumeUsage_BYTES, Total: usage.Bytes, Available: usage.BytesFree, Used: usage.Bytes - usage.BytesFree},
		{Unit: spec.VolumeUsage_INODES, Total: usage.Inodes, Available: usage.InodesFree, Used: usage.Inodes - usage.InodesFree},
	}}, nil
}

// NodeExpandVolume grows a volume to the size asked for. The claims loop has usually done it already.
func (n *Node) NodeExpandVolume(ctx context.Context, request *spec.NodeExpandVolumeRequest) (*spec.NodeExpandVolumeResponse, error) {
	disk, err := n.disk(request.GetVolumeId(), request.GetVolumePath())
	if err != nil {
		return nil, err
	}
	// No size asked for means: whatever the file has.
	size := int64(0)
	if asked := request.GetCapacityRange().GetRequiredBytes(); asked > 0 {
		size = wholeSize(asked)
	}
	if err := disk.Grow(ctx, size); err != nil {
		return nil, refused("expand", request.GetVolumeId(), err)
	}
	reached, err := disk.Size()
	if err != nil {
		return nil, refused("expand", request.GetVolumeId(), err)
	}
	return &spec.NodeExpandVolumeResponse{CapacityBytes: reached}, nil
}

func (n *Node) disk(volume, path string) (*Disk, error) {
	if path == "" {
		return nil, status.Error(codes.InvalidArgument, "the path is missing")
	}
	disk, err := n.disks.Disk(volume)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return disk, nil
}

// refused says it in the log and in gRPC's codes, which the kubelet tells apart.
func refused(what, volume string, err error) error {
	klog.ErrorS(err, "Could not "+what, "volume", volume)
	code := codes.Internal
	var noRoom *NoRoomError
	var wrong *WrongMountError
	switch {
	case errors.Is(err, ErrNoDisk), errors.Is(err, os.ErrNotExist):
		code = codes.NotFound
	case errors.As(err, &noRoom):
		code = codes.ResourceExhausted
	case errors.As(err, &wrong):
		code = codes.FailedPrecondition
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		code = codes.DeadlineExceeded
	}
	return status.Error(code, err.Error())
}
