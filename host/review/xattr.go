package review

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// xattr is one extended attribute.
type xattr struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// maxXattrs bounds the bytes of the attributes of one path.
const maxXattrs = 128 << 10

// kept reports whether an attribute belongs to the place and not to the content, so that it stays when a file is
// replaced: the user's own, and access control lists. A capability is never kept, as the kernel drops it at a write.
func kept(name string) bool {
	return strings.HasPrefix(name, "user.") || name == "system.posix_acl_access" || name == "system.posix_acl_default"
}

// readXattrs reads the attributes that are kept of an open file or directory; none where the file system has none.
func readXattrs(fd int) ([]xattr, error) {
	names := make([]byte, 64<<10) // the kernel's own bound
	n, err := unix.Flistxattr(fd, names)
	if noXattrs(err) || n == 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list its extended attributes: %w", err)
	}
	var list []xattr
	value, total := make([]byte, 64<<10), 0
	for name := range bytes.SplitSeq(bytes.TrimSuffix(names[:n], []byte{0}), []byte{0}) {
		if !kept(string(name)) {
			continue
		}
		n, err := unix.Fgetxattr(fd, string(name), value)
		if errors.Is(err, unix.ENODATA) {
			continue // gone since it was listed
		}
		if total += n; err == nil && total > maxXattrs {
			err = fmt.Errorf("they have more than %d bytes", maxXattrs)
		}
		if err != nil {
			return nil, fmt.Errorf("read its extended attribute %q: %w", name, err)
		}
		list = append(list, xattr{string(name), slices.Clone(value[:n])})
	}
	return list, nil
}

// writeXattrs gives an open file or directory attributes.
func writeXattrs(fd int, list []xattr) error {
	for _, x := range list {
		if err := unix.Fsetxattr(fd, x.Name, x.Value, 0); err != nil {
			return fmt.Errorf("keep its extended attribute %q: %w", x.Name, err)
		}
	}
	return nil
}

func noXattrs(err error) bool {
	return errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS)
}
