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

// shortDir is a directory whose path leaves room for a socket's name (107 bytes in all).
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "csi")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func dialed(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

func asFileSystem(options ...string) *spec.VolumeCapability {
	return &spec.VolumeCapability{AccessType: &spec.VolumeCapability_Mount{
		Mount: &spec.VolumeCapability_MountVolume{FsType: "xfs", MountFlags: options},
	}}
}

func Test_the_kubelet_publishes_measures_grows_and_unpublishes_each_twice(t *testing.T) {
	disks, place := given(t)
	created(t, disks, "pvc-1")
	kubelet := shortDir(t)
	open, err := openSockets(kubelet, NewNode(here, disks))
	must(t, err)
	t.Cleanup(open.Close)
	client := spec.NewNodeClient(dialed(t, filepath.Join(kubelet, "plugins", Driver, "csi.sock")))
	target := filepath.Join(place, "pod")

	for range 2 {
		_, err := client.NodePublishVolume(t.Context(), &spec.NodePublishVolumeRequest{
			VolumeId: "pvc-1", TargetPath: target, VolumeCapability: asFileSystem("noatime"),
		})
		must(t, err)
	}
	mount, found, err := mountedAt(target)
	if err != nil || !found || !mount.shared || mount.readOnly {
		t.Fatalf("mounted: %t %+v %v", found, mount, err)
	}
	stats, err := client.NodeGetVolumeStats(t.Context(), &spec.NodeGetVolumeStatsRequest{VolumeId: "pvc-1", VolumePath: target})
	must(t, err)
	if total := stats.Usage[0].Total; total <= 0 || total > SmallestDisk {
		t.Errorf("it has %d bytes", total)
	}
	for range 2 {
		grown, err := client.NodeExpandVolume(t.Context(), &spec.NodeExpandVolumeRequest{
			VolumeId: "pvc-1", VolumePath: target, CapacityRange: &spec.CapacityRange{RequiredBytes: 2 * SmallestDisk},
		})
		must(t, err)
		if grown.CapacityBytes != 2*SmallestDisk {
			t.Errorf("it grew to %d bytes", grown.CapacityBytes)
		}
	}
	for range 2 {
		_, err := client.NodeUnpublishVolume(t.Context(), &spec.NodeUnpublishVolumeRequest{VolumeId: "pvc-1", TargetPath: target})
		must(t, err)
	}
	if _, err := os.Stat(target); !os.IsNotExist(err) {
		t.Errorf("the target is still there: %v", err)
	}
}

func Test_what_the_kubelet_cannot_have_is_refused_with_its_code(t *testing.T) {
	disks, place := given(t)
	created(t, disks, "pvc-1")
	node := NewNode(here, disks)
	target := filepath.Join(place, "pod")
	block := &spec.VolumeCapability{AccessType: &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}}}
	for sentence, given := range map[string]struct {
		volume, target string
		capability     *spec.VolumeCapability
		want           codes.Code
	}{
		"a volume that this node does not have": {"pvc-9", target, asFileSystem(), codes.NotFound},
		"a name that leads elsewhere":           {"../pvc-1", target, asFileSystem(), codes.InvalidArgument},
		"a block device":                        {"pvc-1", target, block, codes.InvalidArgument},
		"no target":                             {"pvc-1", "", asFileSystem(), codes.InvalidArgument},
		"an option that xfs does not know":      {"pvc-1", target, asFileSystem("nonsense"), codes.Internal},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, err := node.NodePublishVolume(t.Context(), &spec.NodePublishVolumeRequest{
				VolumeId: given.volume, TargetPath: given.target, VolumeCapability: given.capability,
			})
			if status.Code(err) != given.want {
				t.Errorf("refused with %v, want %s", err, given.want)
			}
		})
	}
	if _, err := os.Stat(target); !os.IsNotExist(err) {
		t.Errorf("a refusal left the target: %v", err)
	}
}

func Test_each_start_registers_under_a_new_name_and_leaves_no_old_one(t *testing.T) {
	kubelet := shortDir(t)
	registry := filepath.Join(kubelet, "plugins_registry")
	must(t, os.MkdirAll(registry, 0o700))
	stale := filepath.Join(registry, Driver+"-1.sock")
	others := filepath.Join(registry, "other.sock")
	must(t, os.WriteFile(stale, nil, 0o600))
	must(t, os.WriteFile(others, nil, 0o600))
	node := NewNode(here, &Disks{dir: kubelet})

	seen := map[string]bool{stale: true}
	for range 2 {
		open, err := openSockets(kubelet, node)
		must(t, err)
		found, err := filepath.Glob(filepath.Join(registry, Driver+"-*.sock"))
		must(t, err)
		if len(found) != 1 || seen[found[0]] {
			t.Fatalf("registration sockets: %v, seen before: %v", found, seen)
		}
		seen[found[0]] = true
		info, err := registration.NewRegistrationClient(dialed(t, found[0])).GetInfo(t.Context(), &registration.InfoRequest{})
		must(t, err)
		if info.Type != registration.CSIPlugin || info.Name != Driver || len(info.SupportedVersions) == 0 {
			t.Errorf("it introduces itself as %+v", info)
		}
		identity, err := spec.NewNodeClient(dialed(t, info.Endpoint)).NodeGetInfo(t.Context(), &spec.NodeGetInfoRequest{})
		must(t, err)
		if identity.NodeId != here {
			t.Errorf("the node is %q", identity.NodeId)
		}
		open.Close()
	}
	if _, err := os.Stat(others); err != nil {
		t.Errorf("another driver's socket was touched: %v", err)
	}
}
