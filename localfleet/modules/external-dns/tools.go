//go:build tools

// Package tools names the command that the local fleet builds, so that go.mod and go.sum pin all that it needs.
package tools

import _ "sigs.k8s.io/external-dns"
