// Package factory has the registry txt alone: others need the SDK of a cloud.
package factory

import (
	"fmt"

	"sigs.k8s.io/external-dns/pkg/apis/externaldns"
	"sigs.k8s.io/external-dns/provider"
	"sigs.k8s.io/external-dns/registry"
	"sigs.k8s.io/external-dns/registry/txt"
)

// Select returns the registry txt.
func Select(cfg *externaldns.Config, p provider.Provider) (registry.Registry, error) {
	if cfg.Registry != externaldns.RegistryTXT {
		return nil, fmt.Errorf("this build has no registry but txt, not %s", cfg.Registry)
	}
	return txt.New(cfg, p)
}
