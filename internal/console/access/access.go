// Package access authenticates and authorizes the users of an installed console. It asks the API server to review
// tokens and rights, and caches the answers for a short time. It makes no decisions of its own. Start reading at
// Reviews.
package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"tensorstack.dev/batch/internal/console/live"
)

// Limits of reviews.
const (
	// timeout is the longest time that one review may take.
	timeout = 10 * time.Second
	// maxConcurrent is the largest number of namespaces that one call of List or MayGet reviews concurrently.
	maxConcurrent = 16
	// refusedFor is how long the refusal of a token is cached.
	refusedFor = 2 * time.Second
	// denied is the number of TTLs for which a cached refusal answers questions about several namespaces. Without this
	// limit, a user without rights in the whole cluster would cost a review for each namespace and resource in each
	// TTL.
	denied = 6
)

// Reviews asks the API server to whom a token belongs and what users may do. It is safe for concurrent use.
type Reviews struct {
	// Client must be allowed to create TokenReviews and SubjectAccessReviews.
	Client kubernetes.Interface
	// TTL is how long a positive answer is cached. A refused token is cached for refusedFor. A refused right is cached
	// for denied TTLs, but May does not use refusals older than TTL.
	TTL time.Duration

	users  answers[[sha256.Size]byte, *User]
	rights answers[question, bool]
}

// User is a user whom the API server has authenticated.
type User struct {
	authentication.UserInfo
	// ID is different for users whose names, groups or other attributes differ.
	ID string
}

// ErrToken means that the API server does not accept a token.
var ErrToken = errors.New("the cluster does not accept these credentials")

// User returns the owner of a token; ErrToken if the API server does not accept the token, and another error if it
// cannot be asked. Callers share the result and must not modify it.
func (r *Reviews) User(ctx context.Context, token string) (*User, error) {
	return r.users.get(ctx, sha256.Sum256([]byte(token)), nil, func() (*User, time.Duration, error) {
		// Other callers may wait for this answer too, so it must not depend on the first caller's context.
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		review, err := r.Client.AuthenticationV1().TokenReviews().Create(ctx, &authentication.TokenReview{Spec: authentication.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		switch {
		case err != nil:
			return nil, 0, fmt.Errorf("asking who has a token: %w", err)
		case !review.Status.Authenticated:
			return nil, refusedFor, ErrToken
		}
		u := &User{UserInfo: review.Status.User}
		if u.ID, err = identity(&u.UserInfo); err != nil {
			return nil, 0, err
		}
		return u, r.TTL, nil
	})
}

// identity returns a hash of all attributes of a user.
func identity(u *authentication.UserInfo) (string, error) {
	data, err := json.Marshal(u)
	if err != nil {
		return "", fmt.Errorf("identifying a user: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// question is the key of a cached answer: the ID of the user, and what the user wants to do.
type question struct {
	user                                             string
	verb, group, resource, subresource, in, instance string
}

// May reports whether a user may do what a describes.
func (r *Reviews) May(ctx context.Context, u *User, a *authorization.ResourceAttributes) (bool, error) {
	return r.may(ctx, u, a, r.TTL)
}

// may reports whether a user may do what a describes. It uses a cached refusal only if the refusal is younger than
// refused.
func (r *Reviews) may(ctx context.Context, u *User, a *authorization.ResourceAttributes, refused time.Duration) (bool, error) {
	fresh := func(asked time.Time) bool { return r.rights.now().Sub(asked) < refused }
	q := question{u.ID, a.Verb, a.Group, a.Resource, a.Subresource, a.Namespace, a.Name}
	return r.rights.get(ctx, q, fresh, func() (bool, time.Duration, error) {
		// Other callers may wait for this answer too, so it must not depend on the first caller's context.
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		extra := map[string]authorization.ExtraValue{}
		for name, values := range u.Extra {
			extra[name] = authorization.ExtraValue(values)
		}
		review, err := r.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{
			ResourceAttributes: a, User: u.Username, UID: u.UID, Groups: u.Groups, Extra: extra,
		}}, metav1.CreateOptions{})
		if err != nil {
			return false, 0, fmt.Errorf("asking what a user may do: %w", err)
		}
		if !review.Status.Allowed {
			return false, denied * r.TTL, nil
		}
		return true, r.TTL, nil
	})
}

// Rights implements live.Rights, server.Reads and web.Access of the archive for a user.
type Rights struct {
	Reviews *Reviews
	User    *User
}

// List implements live.Rights. It reviews only the verb list: a user who may list a resource can see everything that a
// watch shows. If a review fails, the resource counts as forbidden in that namespace.
func (r *Rights) List(resource schema.GroupResource, namespaces []string) live.Scope {
	may := func(namespace string, refused time.Duration) bool {
		// Reviews.may limits the time of the review.
		allowed, err := r.may(context.Background(), "list", resource, namespace, refused)
		return err == nil && allowed
	}
	if may("", r.Reviews.TTL) {
		return live.Scope{All: true}
	}
	refused := r.refusedFor(namespaces)
	scope := live.Scope{In: make(map[string]bool, len(namespaces))}
	for i, allowed := range each(namespaces, func(namespace string) bool { return may(namespace, refused) }) {
		scope.In[namespaces[i]] = allowed
	}
	return scope
}

// MayGet implements server.Reads.
func (r *Rights) MayGet(ctx context.Context, resource schema.GroupResource, namespaces []string) ([]bool, error) {
	if len(namespaces) > 1 { // one review is enough for a user who may see all namespaces
		switch all, err := r.may(ctx, "get", resource, "", r.Reviews.TTL); {
		case err != nil:
			return nil, err
		case all:
			return slices.Repeat([]bool{true}, len(namespaces)), nil
		}
	}
	type answer struct {
		may bool
		err error
	}
	refused := r.refusedFor(namespaces)
	answers := each(namespaces, func(namespace string) answer {
		may, err := r.may(ctx, "get", resource, namespace, refused)
		return answer{may, err}
	})
	may := make([]bool, len(namespaces))
	for i, a := range answers {
		if a.err != nil {
			return nil, a.err
		}
		may[i] = a.may
	}
	return may, nil
}

// may reports whether the user may do verb with a resource, such as pods/log, in a namespace. An empty namespace means
// all namespaces. may uses a cached refusal only if the refusal is younger than refused.
func (r *Rights) may(ctx context.Context, verb string, resource schema.GroupResource, namespace string, refused time.Duration) (bool, error) {
	of, part, _ := strings.Cut(resource.Resource, "/")
	return r.Reviews.may(ctx, r.User, &authorization.ResourceAttributes{
		Verb: verb, Group: resource.Group, Resource: of, Subresource: part, Namespace: namespace}, refused)
}

// refusedFor returns the age up to which cached refusals answer a question about the given namespaces. A question about
// one namespace comes from a page about that namespace, which must not show an old refusal.
func (r *Rights) refusedFor(namespaces []string) time.Duration {
	if len(namespaces) > 1 {
		return denied * r.Reviews.TTL
	}
	return r.Reviews.TTL
}
