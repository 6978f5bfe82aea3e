package plane

import (
	"context"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"tensorstack.dev/batch/test/kit/await"
)

// Patient returns a client that retries creations, updates and patches, except those of the status, while the API
// server does not yet know the types that its mutating admission policies need for custom resources. This happens
// shortly after a start, and while the API server adds CRDs of the same group. After await.Patience, the client returns
// the error.
func Patient(c client.WithWatch) client.WithWatch { return patient{c} }

type patient struct{ client.WithWatch }

// Create creates an object as the embedded client does, with retries.
func (p patient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return again(ctx, func() error { return p.WithWatch.Create(ctx, o, opts...) })
}

// Update updates an object as the embedded client does, with retries.
func (p patient) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return again(ctx, func() error { return p.WithWatch.Update(ctx, o, opts...) })
}

// Patch patches an object as the embedded client does, with retries.
func (p patient) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return again(ctx, func() error { return p.WithWatch.Patch(ctx, o, patch, opts...) })
}

func again(ctx context.Context, write func() error) error {
	const pause = 50 * time.Millisecond
	for deadline := time.Now().Add(await.Patience); ; {
		err := write()
		if err == nil || !strings.Contains(err.Error(), "There can be a delay between when CustomResourceDefinitions") || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}
