// Package factory has the provider rfc2136 alone: the others need the SDKs of many clouds, which take long to compile.
package factory

import (
	"context"
	"fmt"

	"sigs.k8s.io/external-dns/endpoint"
	"sigs.k8s.io/external-dns/pkg/apis/externaldns"
	"sigs.k8s.io/external-dns/provider"
	"sigs.k8s.io/external-dns/provider/rfc2136"
)

// Select returns the provider rfc2136.
func Select(ctx context.Context, cfg *externaldns.Config, domains *endpoint.DomainFilter) (provider.Provider, error) {
	if cfg.Provider != externaldns.ProviderRFC2136 {
		return nil, fmt.Errorf("this build has no provider but rfc2136, not %s", cfg.Provider)
	}
	return rfc2136.New(ctx, cfg, domains)
}
