package peer

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// isLocalAddr says whether packets to a stay on this host. It asks the routing table, not the interfaces, which do not list
// every address that is local (a whole prefix can be routed to lo).
func isLocalAddr(n *netlink, a netip.Addr) (bool, error) {
	index, err := zoneIndex(a)
	if err != nil {
		return false, err
	}
	family := byte(unix.AF_INET6)
	if a.Is4() {
		family = unix.AF_INET
	}
	request := make([]byte, unix.SizeofRtMsg, unix.SizeofRtMsg+32)
	request[0] = family
	request[1] = byte(a.BitLen())
	request = appendAttribute(request, unix.RTA_DST, a.AsSlice())
	if index != 0 {
		request = appendAttribute(request, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, index))
	}
	var local bool
	err = n.roundTrip(unix.RTM_GETROUTE, unix.RTM_NEWROUTE, request, func(body []byte) (err error) {
		local, err = parseRouteIsLocal(body)
		return err
	})
	return local, err
}

func parseRouteIsLocal(b []byte) (bool, error) {
	if len(b) < unix.SizeofRtMsg {
		return false, errMalformed
	}
	return b[7] == unix.RTN_LOCAL, nil
}

// appendAttribute appends a value whose length is a multiple of four.
func appendAttribute(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofRtAttr+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	return append(b, value...)
}
