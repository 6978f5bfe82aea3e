// Package access says who makes a request to the console of an installation and what they may see: it has tokens reviewed
// and rights reviewed by the API server, and keeps the answers for a short time. It decides nothing itself. Start reading
// at Reviews.
package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"tensorstack.dev/batch/internal/console/live"
)

// These bound reviews.
const (
	// timeout is the longest time that one review may take.
	timeout = 10 * time.Second
	// atOnce is the largest number of namespaces that are reviewed at once for one question.
	atOnce = 16
	// refusedFor is for how long the refusal of a token is kept.
	refusedFor = 2 * time.Second
	// denied is for how many TTLs a list leaves out a namespace that was refused to a user. A user without rights in the
	// whole cluster would otherwise cost a review for each namespace and resource in each TTL.
	denied = 6
)

// Reviews asks the API server who has a token and what users may do. Several goroutines may use it at once.
type Reviews struct {
	// Client may create TokenReviews and SubjectAccessReviews.
	Client kubernetes.Interface
	// TTL is for how long an answer is kept.
	TTL time.Duration

	users  answers[[sha256.Size]byte, *User]
	rights answers[question, bool]
}

// User is somebody whom the API server knows.
type User struct {
	authentication.UserInfo
	// ID differs between users with different names, groups or other attributes.
	ID string
}

// ErrToken means that the API server does not accept a token.
var ErrToken = errors.New("the cluster does not accept these credentials")

// User returns who has a token; ErrToken if the API server does not accept it.
func (r *Reviews) User(ctx context.Context, token string) (*User, error) {
	return r.users.get(ctx, sha256.Sum256([]byte(token)), nil, func() (*User, time.Duration, error) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout) // the answer also serves others who wait for it
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

// question is whether a user may do something.
type question struct {
	user                                             string
	verb, group, resource, subresource, in, instance string
}

// May returns whether a user may do something.
func (r *Reviews) May(ctx context.Context, u *User, a *authorization.ResourceAttributes) (bool, error) {
	return r.may(ctx, u, a, r.TTL)
}

// may returns whether a user may do something. A refusal may be as old as refused.
func (r *Reviews) may(ctx context.Context, u *User, a *authorization.ResourceAttributes, refused time.Duration) (bool, error) {
	fresh := func(asked time.Time) bool { return r.rights.now().Sub(asked) < refused }
	q := question{u.ID, a.Verb, a.Group, a.Resource, a.Subresource, a.Namespace, a.Name}
	return r.rights.get(ctx, q, fresh, func() (bool, time.Duration, error) {
		ctx, cancel := context.WithTimeout(context.Background(), timeout) // the answer also serves others who wait for it
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

// Rights are what a user may list, for live.View. What cannot be found out counts as forbidden.
type Rights struct {
	Reviews *Reviews
	User    *User
}

// List implements live.Rights. The right to list a resource is all that is asked for: who may list can see at any time
// what a watch shows.
func (r *Rights) List(resource schema.GroupResource, namespaces []string) live.Scope {
	may := func(namespace string, refused time.Duration) bool {
		allowed, err := r.Reviews.may(context.Background(), r.User, &authorization.ResourceAttributes{ // bounded by may
			Verb: "list", Group: resource.Group, Resource: resource.Resource, Namespace: namespace}, refused)
		return err == nil && allowed
	}
	if may("", r.Reviews.TTL) {
		return live.Scope{All: true}
	}
	refused := r.Reviews.TTL
	if len(namespaces) > 1 { // a question about one namespace is about a page of its own
		refused *= denied
	}
	scope := live.Scope{In: make(map[string]bool, len(namespaces))}
	for i, allowed := range each(namespaces, func(namespace string) bool { return may(namespace, refused) }) {
		scope.In[namespaces[i]] = allowed
	}
	return scope
}
