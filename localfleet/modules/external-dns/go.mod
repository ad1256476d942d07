module localfleet/external-dns

go 1.27.0

require sigs.k8s.io/external-dns v0.23.0
