"""The metrics of both roles: what users of kube-fip-operator scrape, to the letter, and new ones, `fipop_…`.

Gauges about objects are rendered from a snapshot when they are scraped, so that their series vanish with the
object; counters and histograms are counted here as things happen. No address is ever a label. Nothing else in
fipop imports prometheus_client.
"""
