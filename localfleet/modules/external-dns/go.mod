module localfleet/external-dns

go 1.27.0

require sigs.k8s.io/external-dns v0.23.0

// patches/source has no source for OpenShift: a stand-in suffices.
replace github.com/openshift/client-go => ./openshift
