package csi

// The reconcile loop for PersistentVolumeClaims and PersistentVolumes: informers queue the objects that may concern this
// node, and failed items are retried with exponential backoff.

import (
	"context"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corerest "k8s.io/client-go/kubernetes/typed/core/v1"
	corelist "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

const (
	workers          = 4
	resyncInterval   = 10 * time.Minute
	minRetryDelay    = 100 * time.Millisecond
	maxRetryDelay    = 20 * time.Second
	reconcileTimeout = time.Minute
)

// workItem identifies a claim (with a namespace) or a volume (without one). The uid distinguishes a claim from a later one
// with the same name.
type workItem struct {
	namespace, name string
	uid             types.UID
}

// Claims is the reconcile loop of one node: it creates, expands and deletes volumes.
type Claims struct {
	client  kubernetes.Interface
	disks   *Disks
	node    string
	events  record.EventRecorder
	queue   workqueue.TypedRateLimitingInterface[workItem]
	claims  corelist.PersistentVolumeClaimLister
	volumes corelist.PersistentVolumeLister

	// pendingFiles holds the uids of claims whose file this process has created and whose PersistentVolume may not exist
	// yet. When such a claim is deleted, its file is removed. Files of an earlier process are kept: they may be retained data.
	pendingFiles sync.Map
}

// NewClaims creates the loop.
func NewClaims(client kubernetes.Interface, disks *Disks, node string) *Claims {
	return &Claims{
		client: client, disks: disks, node: node,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[workItem](minRetryDelay, maxRetryDelay)),
	}
}

// Run runs the loop until the context ends.
func (c *Claims) Run(ctx context.Context) error {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&corerest.EventSinkImpl{Interface: c.client.CoreV1().Events("")})
	c.events = broadcaster.NewRecorder(scheme.Scheme, core.EventSource{Component: Driver, Host: c.node})

	factory := informers.NewSharedInformerFactoryWithOptions(c.client, resyncInterval, informers.WithTransform(dropManagedFields))
	c.claims = factory.Core().V1().PersistentVolumeClaims().Lister()
	c.volumes = factory.Core().V1().PersistentVolumes().Lister()
	for informer, handle := range map[cache.SharedIndexInformer]func(any){
		factory.Core().V1().PersistentVolumeClaims().Informer(): c.queueClaim,
		factory.Core().V1().PersistentVolumes().Informer():      c.queueVolume,
	} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: handle, UpdateFunc: func(_, changed any) { handle(changed) }, DeleteFunc: handle,
		}); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	factory.WaitForCacheSync(ctx.Done())

	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for c.processNext(ctx) {
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	running.Wait()
	return nil
}

// dropManagedFields reduces the memory of the cache, since every node caches all claims.
func dropManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

func (c *Claims) queueClaim(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	if claim, ok := object.(*core.PersistentVolumeClaim); ok {
		c.queue.Add(workItem{claim.Namespace, claim.Name, claim.UID})
	}
}

// queueVolume also queues the claim of the volume, which may wait for the deletion of the volume.
func (c *Claims) queueVolume(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	volume, ok := object.(*core.PersistentVolume)
	if !ok || !isOnNode(volume, c.node) {
		return
	}
	c.queue.Add(workItem{name: volume.Name})
	if claim := volume.Spec.ClaimRef; claim != nil {
		c.queue.Add(workItem{claim.Namespace, claim.Name, claim.UID})
	}
}

// isConflict reports whether another client changed or created the object first. Conflicts are retried without a warning.
func isConflict(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

// recordWarning records a warning event on the object.
func (c *Claims) recordWarning(object runtime.Object, reason string, err error) {
	if !isConflict(err) {
		c.events.Event(object, core.EventTypeWarning, reason, err.Error())
	}
}

func (c *Claims) processNext(ctx context.Context) bool {
	item, stopped := c.queue.Get()
	if stopped {
		return false
	}
	defer c.queue.Done(item)
	bounded, cancel := context.WithTimeout(ctx, reconcileTimeout)
	defer cancel()
	reconcile := c.reconcileVolume
	if item.namespace != "" {
		reconcile = c.reconcileClaim
	}
	if err := reconcile(bounded, item); err != nil {
		if ctx.Err() == nil && !isConflict(err) {
			klog.ErrorS(err, "reconcile failed, will retry", "namespace", item.namespace, "name", item.name)
		}
		c.queue.AddRateLimited(item)
		return true
	}
	c.queue.Forget(item)
	return true
}
