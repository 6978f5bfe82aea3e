package placement

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	utilnode "k8s.io/component-helpers/node/topology"
	fwk "k8s.io/kube-scheduler/framework"
)

// order keeps the snapshot's list of nodes in the order in which searches examine the nodes: by name within each zone,
// alternating between the zones. The order of the snapshot itself depends on when each node was added.
type order struct {
	listed, sorted []fwk.NodeInfo
	// nodes are the objects of listed that check last saw.
	nodes []*corev1.Node
}

// of returns the nodes in the order in which searches examine them.
func (o *order) of(listed []fwk.NodeInfo) []fwk.NodeInfo {
	// The snapshot allocates a new list when nodes are added or removed.
	if len(listed) != len(o.listed) || len(listed) > 0 && &listed[0] != &o.listed[0] {
		o.listed, o.sorted, o.nodes = listed, acrossZones(listed), make([]*corev1.Node, len(listed))
		for i, info := range listed {
			o.nodes[i] = info.Node()
		}
	}
	return o.sorted
}

// check drops the sorted list if a node is now in another zone. The method of then sorts the nodes again.
func (o *order) check() {
	for i, info := range o.listed {
		if node := info.Node(); node != o.nodes[i] {
			if node == nil || utilnode.GetZoneKey(node) != utilnode.GetZoneKey(o.nodes[i]) {
				*o = order{}
				return
			}
			o.nodes[i] = node
		}
	}
}

// acrossZones orders nodes so that neighbours are in different zones, as the snapshot does. A search among many nodes
// examines only some of them, and thus sees nodes of all zones.
func acrossZones(nodes []fwk.NodeInfo) []fwk.NodeInfo {
	zones := map[string][]fwk.NodeInfo{}
	for _, info := range nodes {
		zone := utilnode.GetZoneKey(info.Node())
		zones[zone] = append(zones[zone], info)
	}
	names := slices.Sorted(maps.Keys(zones))
	for _, zone := range names {
		slices.SortFunc(zones[zone], func(a, b fwk.NodeInfo) int { return cmp.Compare(a.Node().Name, b.Node().Name) })
	}
	all := make([]fwk.NodeInfo, 0, len(nodes))
	for i := 0; len(all) < len(nodes); i++ {
		for _, zone := range names {
			if i < len(zones[zone]) {
				all = append(all, zones[zone][i])
			}
		}
	}
	return all
}
