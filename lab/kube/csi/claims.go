package csi

// The loop over claims and volumes: it learns of changes from caches, queues what may concern this node, and repeats
// what failed, more slowly each time.

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
	workers      = 4
	resync       = 10 * time.Minute
	firstRetry   = 100 * time.Millisecond
	slowestRetry = 20 * time.Second
	workPatience = time.Minute
)

// subject is what the loop works on, one at a time: a claim if it has a namespace, else a volume. The uid keeps a claim
// apart from a later one of the same name.
type subject struct {
	namespace, name string
	uid             types.UID
}

// Claims makes, grows and deletes the volumes of one node.
type Claims struct {
	client  kubernetes.Interface
	disks   *Disks
	node    string
	events  record.EventRecorder
	queue   workqueue.TypedRateLimitingInterface[subject]
	claims  corelist.PersistentVolumeClaimLister
	volumes corelist.PersistentVolumeLister

	// unannounced are the claims whose file this process has made and whose volume it may not have created: if such a
	// claim goes away, its file must. Files that an earlier process left are not touched, they may be retained data.
	unannounced sync.Map
}

// NewClaims prepares the loop.
func NewClaims(client kubernetes.Interface, disks *Disks, node string) *Claims {
	return &Claims{
		client: client, disks: disks, node: node,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[subject](firstRetry, slowestRetry)),
	}
}

// Run works until the context ends.
func (c *Claims) Run(ctx context.Context) error {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&corerest.EventSinkImpl{Interface: c.client.CoreV1().Events("")})
	c.events = broadcaster.NewRecorder(scheme.Scheme, core.EventSource{Component: Driver, Host: c.node})

	factory := informers.NewSharedInformerFactoryWithOptions(c.client, resync, informers.WithTransform(slim))
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

	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	working.Wait()
	return nil
}

// slim drops what the loop never reads, so that every node can afford a cache of all claims.
func slim(object any) (any, error) {
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
		c.queue.Add(subject{claim.Namespace, claim.Name, claim.UID})
	}
}

// queueVolume queues the claim, too: what it waits for may be its volume's going.
func (c *Claims) queueVolume(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	volume, ok := object.(*core.PersistentVolume)
	if !ok || !isHere(volume, c.node) {
		return
	}
	c.queue.Add(subject{name: volume.Name})
	if claim := volume.Spec.ClaimRef; claim != nil {
		c.queue.Add(subject{claim.Namespace, claim.Name, claim.UID})
	}
}

// wasOutrun: somebody else changed the object first, which is no failure but a reason to look again.
func wasOutrun(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
}

// complain tells whoever looks at the object why it is not as it should be.
func (c *Claims) complain(about runtime.Object, reason string, err error) {
	if !wasOutrun(err) {
		c.events.Event(about, core.EventTypeWarning, reason, err.Error())
	}
}

func (c *Claims) next(ctx context.Context) bool {
	which, stopped := c.queue.Get()
	if stopped {
		return false
	}
	defer c.queue.Done(which)
	bounded, cancel := context.WithTimeout(ctx, workPatience)
	defer cancel()
	settle := c.settleVolume
	if which.namespace != "" {
		settle = c.settleClaim
	}
	if err := settle(bounded, which); err != nil {
		if ctx.Err() == nil && !wasOutrun(err) {
			klog.ErrorS(err, "Will be tried again", "namespace", which.namespace, "name", which.name)
		}
		c.queue.AddRateLimited(which)
		return true
	}
	c.queue.Forget(which)
	return true
}
