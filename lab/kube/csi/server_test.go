package csi

import (
	"os"
	"path/filepath"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// shortDir returns a directory with a short path: the path of a socket is limited to 107 bytes.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "csi")
	check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

func asFileSystem(options ...string) *spec.VolumeCapability {
	return &spec.VolumeCapability{AccessType: &spec.VolumeCapability_Mount{
		Mount: &spec.VolumeCapability_MountVolume{FsType: "xfs", MountFlags: options},
	}}
}

func Test_publish_stats_expand_and_unpublish_can_be_repeated(t *testing.T) {
	disks, dir := testDisks(t)
	createDisk(t, disks, "pvc-1")
	kubelet := shortDir(t)
	open, err := openSockets(kubelet, NewNode(here, disks))
	check(t, err)
	t.Cleanup(open.Close)
	client := spec.NewNodeClient(dial(t, filepath.Join(kubelet, "plugins", Driver, "csi.sock")))
	target := filepath.Join(dir, "pod")

	for range 2 {
		_, err := client.NodePublishVolume(t.Context(), &spec.NodePublishVolumeRequest{
			VolumeId: "pvc-1", TargetPath: target, VolumeCapability: asFileSystem("noatime"),
		})
		check(t, err)
	}
	mount, found, err := mountedAt(target)
	if err != nil || !found || !mount.shared || mount.readOnly {
		t.Fatalf("mounted: %t %+v %v", found, mount, err)
	}
	stats, err := client.NodeGetVolumeStats(t.Context(), &spec.NodeGetVolumeStatsRequest{VolumeId: "pvc-1", VolumePath: target})
	check(t, err)
	if total := stats.Usage[0].Total; total <= 0 || total > MinDiskSize {
		t.Errorf("the volume has %d bytes", total)
	}
	for range 2 {
		grown, err := client.NodeExpandVolume(t.Context(), &spec.NodeExpandVolumeRequest{
			VolumeId: "pvc-1", VolumePath: target, CapacityRange: &spec.CapacityRange{RequiredBytes: 2 * MinDiskSize},
		})
		check(t, err)
		if grown.CapacityBytes != 2*MinDiskSize {
			t.Errorf("the volume was expanded to %d bytes", grown.CapacityBytes)
		}
	}
	for range 2 {
		_, err := client.NodeUnpublishVolume(t.Context(), &spec.NodeUnpublishVolumeRequest{VolumeId: "pvc-1", TargetPath: target})
		check(t, err)
	}
	if _, err := os.Stat(target); !os.IsNotExist(err) {
		t.Errorf("the target still exists: %v", err)
	}
}

func Test_an_invalid_publish_request_is_rejected_with_its_code(t *testing.T) {
	disks, dir := testDisks(t)
	createDisk(t, disks, "pvc-1")
	node := NewNode(here, disks)
	target := filepath.Join(dir, "pod")
	block := &spec.VolumeCapability{AccessType: &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}}}
	for name, test := range map[string]struct {
		volume, target string
		capability     *spec.VolumeCapability
		want           codes.Code
	}{
		"an unknown volume":            {"pvc-9", target, asFileSystem(), codes.NotFound},
		"a name with a path separator": {"../pvc-1", target, asFileSystem(), codes.InvalidArgument},
		"a block volume":               {"pvc-1", target, block, codes.InvalidArgument},
		"an empty target":              {"pvc-1", "", asFileSystem(), codes.InvalidArgument},
		"an unknown mount option":      {"pvc-1", target, asFileSystem("nonsense"), codes.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := node.NodePublishVolume(t.Context(), &spec.NodePublishVolumeRequest{
				VolumeId: test.volume, TargetPath: test.target, VolumeCapability: test.capability,
			})
			if status.Code(err) != test.want {
				t.Errorf("rejected with %v, want %s", err, test.want)
			}
		})
	}
	if _, err := os.Stat(target); !os.IsNotExist(err) {
		t.Errorf("the rejected request created the target: %v", err)
	}
}

func Test_each_start_uses_a_new_registration_socket(t *testing.T) {
	kubelet := shortDir(t)
	registry := filepath.Join(kubelet, "plugins_registry")
	check(t, os.MkdirAll(registry, 0o700))
	stale := filepath.Join(registry, Driver+"-1.sock")
	others := filepath.Join(registry, "other.sock")
	check(t, os.WriteFile(stale, nil, 0o600))
	check(t, os.WriteFile(others, nil, 0o600))
	node := NewNode(here, &Disks{dir: kubelet})

	seen := map[string]bool{stale: true}
	for range 2 {
		open, err := openSockets(kubelet, node)
		check(t, err)
		sockets, err := filepath.Glob(filepath.Join(registry, Driver+"-*.sock"))
		check(t, err)
		if len(sockets) != 1 || seen[sockets[0]] {
			t.Fatalf("registration sockets: %v, seen before: %v", sockets, seen)
		}
		seen[sockets[0]] = true
		info, err := registration.NewRegistrationClient(dial(t, sockets[0])).GetInfo(t.Context(), &registration.InfoRequest{})
		check(t, err)
		if info.Type != registration.CSIPlugin || info.Name != Driver || len(info.SupportedVersions) == 0 {
			t.Errorf("the plugin info is %+v", info)
		}
		identity, err := spec.NewNodeClient(dial(t, info.Endpoint)).NodeGetInfo(t.Context(), &spec.NodeGetInfoRequest{})
		check(t, err)
		if identity.NodeId != here {
			t.Errorf("the node id is %q", identity.NodeId)
		}
		open.Close()
	}
	if _, err := os.Stat(others); err != nil {
		t.Errorf("the socket of another driver was removed: %v", err)
	}
}
