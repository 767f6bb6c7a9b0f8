"""Tools that inspect, check and repair the files of a store that no broker has open."""
