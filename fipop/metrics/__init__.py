"""What the metrics of both roles stand on: counters that are used where things happen, and gauges.

Gauges about objects are rendered from what is known when they are scraped, so that their series vanish with the
object. No label is an address.
"""
