package csi

// What the loop does about its decisions. Caches only say where to look: everything is read again from the API server
// before something is made, promised or destroyed, and every step may be repeated.

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

func (c *Claims) settleClaim(ctx context.Context, which subject) error {
	claim, err := c.claims.PersistentVolumeClaims(which.namespace).Get(which.name)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if claim == nil || claim.UID != which.uid || !awaitsVolume(claim, c.node) {
		if err := c.clearUnannounced(ctx, which); err != nil {
			return err
		}
	}
	switch {
	case claim == nil || claim.UID != which.uid:
		return nil
	case claim.Spec.VolumeName == "":
		return c.provision(ctx, claim)
	default:
		return c.grow(ctx, claim)
	}
}

// provision gives a claim its volume: first the file, then the object that promises it.
func (c *Claims) provision(ctx context.Context, claim *core.PersistentVolumeClaim) error {
	if !awaitsVolume(claim, c.node) {
		return nil
	}
	class, err := c.classOf(ctx, claim)
	if err != nil || class == nil {
		return err
	}
	claim, err = c.liveClaim(ctx, claim.Namespace, claim.Name, claim.UID)
	if err != nil || claim == nil || !awaitsVolume(claim, c.node) {
		return err
	}
	name := volumeName(claim)
	if volume, err := c.liveVolume(ctx, name); err != nil || volume != nil {
		// Made already; who binds it is the controller manager.
		return err
	}
	if why := whyNotProvision(claim); why != "" {
		c.events.Event(claim, core.EventTypeWarning, "ProvisioningFailed", why)
		klog.InfoS("Refused", "claim", klog.KObj(claim), "why", why)
		return nil
	}
	disk, err := c.disks.Disk(name)
	if err != nil {
		return err
	}
	c.unannounced.Store(claim.UID, true)
	if err := disk.Create(ctx, sizeOf(claim)); err != nil {
		c.complain(claim, "ProvisioningFailed", err)
		return err
	}
	return c.announce(ctx, claim, volumeFor(claim, class, c.node))
}

func (c *Claims) announce(ctx context.Context, claim *core.PersistentVolumeClaim, volume *core.PersistentVolume) error {
	_, err := c.client.CoreV1().PersistentVolumes().Create(ctx, volume, meta.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// Ours from an attempt whose answer was lost, or another node's: both are told apart when tried again.
		return fmt.Errorf("volume %s was made meanwhile: %w", volume.Name, err)
	}
	if err != nil {
		c.complain(claim, "ProvisioningFailed", err)
		return fmt.Errorf("volume %s: %w", volume.Name, err)
	}
	c.unannounced.Delete(claim.UID)
	c.events.Eventf(claim, core.EventTypeNormal, "ProvisioningSucceeded", "made volume %s", volume.Name)
	klog.InfoS("Provisioned", "claim", klog.KObj(claim), "volume", volume.Name, "capacity", volume.Spec.Capacity.Storage())
	return nil
}

// clearUnannounced removes a file that was made for a claim which then went away or to another node.
func (c *Claims) clearUnannounced(ctx context.Context, which subject) error {
	if _, made := c.unannounced.Load(which.uid); !made {
		return nil
	}
	claim, err := c.liveClaim(ctx, which.namespace, which.name, which.uid)
	if err != nil {
		return err
	}
	if claim != nil && awaitsVolume(claim, c.node) {
		return fmt.Errorf("claim %s/%s still awaits its volume here, the cache is behind", which.namespace, which.name)
	}
	name := "pvc-" + string(which.uid)
	volume, err := c.liveVolume(ctx, name)
	if err != nil {
		return err
	}
	if volume == nil || !isHere(volume, c.node) {
		disk, err := c.disks.Disk(name)
		if err != nil {
			return err
		}
		if err := disk.Remove(ctx); err != nil {
			return err
		}
		klog.InfoS("Removed a file whose claim went away", "volume", name)
	}
	c.unannounced.Delete(which.uid)
	return nil
}

// grow gives a bound claim the size it asks for.
func (c *Claims) grow(ctx context.Context, claim *core.PersistentVolumeClaim) error {
	volume, err := c.volumes.Get(claim.Spec.VolumeName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if growthOf(claim, volume, c.node) == NoGrowth {
		return nil
	}
	claim, err = c.liveClaim(ctx, claim.Namespace, claim.Name, claim.UID)
	if err != nil || claim == nil {
		return err
	}
	volume, err = c.liveVolume(ctx, claim.Spec.VolumeName)
	if err != nil || volume == nil {
		return err
	}
	size := volume.Spec.Capacity.Storage().Value()
	switch growthOf(claim, volume, c.node) {
	case NoGrowth:
		return nil
	case GrowDisk:
		class, err := c.classOf(ctx, claim)
		if err != nil {
			return err
		}
		if class == nil || !allowsGrowth(class) {
			c.events.Event(claim, core.EventTypeWarning, "VolumeResizeFailed", "the claim's storage class does not allow expansion")
			return nil
		}
		size = sizeOf(claim)
	}
	if err := c.growTo(ctx, claim, volume, size); err != nil {
		c.complain(claim, "VolumeResizeFailed", err)
		return err
	}
	return nil
}

// growTo keeps to an order. The disk first: nothing is said before it is true. The claim's status right after the
// volume's capacity, and never a pending resize: a kubelet that sees the volume ahead of the claim asks without pause.
func (c *Claims) growTo(ctx context.Context, claim *core.PersistentVolumeClaim, volume *core.PersistentVolume, size int64) error {
	disk, err := c.disks.Disk(volume.Spec.CSI.VolumeHandle)
	if err != nil {
		return err
	}
	if err := disk.Grow(ctx, size); err != nil {
		return err
	}
	capacity := core.ResourceList{core.ResourceStorage: *resource.NewQuantity(size, resource.BinarySI)}
	if volume.Spec.Capacity.Storage().Value() < size {
		change, err := changeOf(volume.ResourceVersion, "spec", map[string]any{"capacity": capacity})
		if err != nil {
			return err
		}
		if _, err := c.client.CoreV1().PersistentVolumes().Patch(ctx, volume.Name, types.MergePatchType, change, meta.PatchOptions{}); err != nil {
			return fmt.Errorf("capacity of volume %s: %w", volume.Name, err)
		}
	}
	change, err := changeOf("", "status", map[string]any{"capacity": capacity, "allocatedResources": capacity})
	if err != nil {
		return err
	}
	if _, err := c.client.CoreV1().PersistentVolumeClaims(claim.Namespace).
		Patch(ctx, claim.Name, types.MergePatchType, change, meta.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("status of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	c.events.Eventf(claim, core.EventTypeNormal, "VolumeResizeSuccessful", "volume %s has %s", volume.Name, capacity.Storage())
	klog.InfoS("Grew", "claim", klog.KObj(claim), "volume", volume.Name, "capacity", capacity.Storage())
	return nil
}

// changeOf is a merge patch of one part of an object; with a resource version, only of the object that was read.
func changeOf(version, part string, fields map[string]any) ([]byte, error) {
	change := map[string]any{part: fields}
	if version != "" {
		change["metadata"] = map[string]any{"resourceVersion": version}
	}
	return json.Marshal(change)
}

func (c *Claims) settleVolume(ctx context.Context, which subject) error {
	cached, err := c.volumes.Get(which.name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || !mayNeedWork(cached, c.node) {
		return err
	}
	volume, err := c.liveVolume(ctx, which.name)
	if err != nil || volume == nil {
		return err
	}
	var claim *core.PersistentVolumeClaim
	if reference := volume.Spec.ClaimRef; reference != nil {
		named, err := c.liveClaim(ctx, reference.Namespace, reference.Name, reference.UID)
		if err != nil {
			return err
		}
		claim = claimOf(volume, named)
	}
	switch fateOf(volume, claim, c.node) {
	case Destroy:
		if err := c.destroy(ctx, volume); err != nil {
			c.complain(volume, "VolumeFailedDelete", err)
			return err
		}
	case LetGo:
		if err := c.dropFinalizer(ctx, volume); err != nil {
			return err
		}
		klog.InfoS("Let a retained volume go, its file is kept", "volume", volume.Name, "handle", volume.Spec.CSI.VolumeHandle)
	}
	return nil
}

// destroy deletes the file before the object: an object without a file is dealt with again, a file without an object
// would be forgotten.
func (c *Claims) destroy(ctx context.Context, volume *core.PersistentVolume) error {
	disk, err := c.disks.Disk(volume.Spec.CSI.VolumeHandle)
	if err != nil {
		return err
	}
	if err := disk.Remove(ctx); err != nil {
		return err
	}
	if volume.DeletionTimestamp == nil {
		uid := meta.Preconditions{UID: &volume.UID}
		err := c.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, meta.DeleteOptions{Preconditions: &uid})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting volume %s: %w", volume.Name, err)
		}
		again, err := c.liveVolume(ctx, volume.Name)
		if err != nil {
			return err
		}
		if again == nil || again.UID != volume.UID {
			klog.InfoS("Deleted", "volume", volume.Name)
			return nil
		}
		volume = again
	}
	if err := c.dropFinalizer(ctx, volume); err != nil {
		return err
	}
	klog.InfoS("Deleted", "volume", volume.Name)
	return nil
}

func (c *Claims) dropFinalizer(ctx context.Context, volume *core.PersistentVolume) error {
	if !slices.Contains(volume.Finalizers, Finalizer) {
		return nil
	}
	// A copy with its resource version: if somebody changed the volume meanwhile, this fails and is decided anew.
	volume = volume.DeepCopy()
	volume.Finalizers = slices.DeleteFunc(volume.Finalizers, func(name string) bool { return name == Finalizer })
	_, err := c.client.CoreV1().PersistentVolumes().Update(ctx, volume, meta.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("finalizer of volume %s: %w", volume.Name, err)
	}
	return nil
}

// classOf is the claim's storage class, or nil if that is gone or not this driver's.
func (c *Claims) classOf(ctx context.Context, claim *core.PersistentVolumeClaim) (*storage.StorageClass, error) {
	if claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName == "" {
		return nil, nil
	}
	class, err := c.client.StorageV1().StorageClasses().Get(ctx, *claim.Spec.StorageClassName, meta.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("storage class %s: %w", *claim.Spec.StorageClassName, err)
	}
	if class.Provisioner != Driver {
		return nil, nil
	}
	return class, nil
}

// liveClaim reads past the cache; nil: there is none, or another of that name. Without a uid, any of that name will do.
func (c *Claims) liveClaim(ctx context.Context, namespace, name string, uid types.UID) (*core.PersistentVolumeClaim, error) {
	claim, err := c.client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, meta.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("claim %s/%s: %w", namespace, name, err)
	}
	if uid != "" && claim.UID != uid {
		return nil, nil
	}
	return claim, nil
}

// liveVolume reads past the cache; nil: there is none.
func (c *Claims) liveVolume(ctx context.Context, name string) (*core.PersistentVolume, error) {
	volume, err := c.client.CoreV1().PersistentVolumes().Get(ctx, name, meta.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", name, err)
	}
	return volume, nil
}
