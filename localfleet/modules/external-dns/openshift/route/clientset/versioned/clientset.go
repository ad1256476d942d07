// Package versioned stands in for the client of OpenShift, which the source for OpenShift alone needs.
package versioned

import "k8s.io/client-go/rest"

// Interface is empty.
type Interface any

// NewForConfig returns nothing.
func NewForConfig(*rest.Config) (Interface, error) { return nil, nil }
