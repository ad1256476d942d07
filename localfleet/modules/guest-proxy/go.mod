module localfleet/guest-proxy

go 1.26.0
