package daemon

import (
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/hutch-run/hutch/plugins/e2b/internal/api/filesystem"
)

// entryOf describes what lies at path. Of a symbolic link type and mode are those of what it leads to, while size and
// permissions are its own; a broken one has no type.
func entryOf(path string) (*pb.EntryInfo, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	e := &pb.EntryInfo{
		Name:         st.Name(),
		Path:         path,
		Type:         typeOf(st.Mode()),
		Size:         st.Size(),
		Mode:         uint32(st.Mode().Perm()),
		Permissions:  st.Mode().String(),
		ModifiedTime: timestamppb.New(st.ModTime()),
		Metadata:     readMetadata(path),
	}
	if st.Mode()&os.ModeSymlink != 0 {
		target := path
		if resolved, err := filepath.EvalSymlinks(path); err == nil {
			target = resolved
		}
		e.SymlinkTarget, e.Type, e.Mode = &target, pb.FileType_FILE_TYPE_UNSPECIFIED, 0
		if to, err := os.Stat(target); err == nil {
			e.Type, e.Mode = typeOf(to.Mode()), uint32(to.Mode().Perm())
		}
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		e.Owner, e.Group = strconv.Itoa(int(sys.Uid)), strconv.Itoa(int(sys.Gid))
		if u, err := user.LookupId(e.Owner); err == nil {
			e.Owner = u.Username
		}
		if g, err := user.LookupGroupId(e.Group); err == nil {
			e.Group = g.Name
		}
	}
	return e, nil
}

func typeOf(mode os.FileMode) pb.FileType {
	switch {
	case mode.IsRegular():
		return pb.FileType_FILE_TYPE_FILE
	case mode.IsDir():
		return pb.FileType_FILE_TYPE_DIRECTORY
	case mode&os.ModeSymlink != 0:
		return pb.FileType_FILE_TYPE_SYMLINK
	}
	return pb.FileType_FILE_TYPE_UNSPECIFIED
}

// A file's metadata are extended attributes of this prefix, and on the wire headers of the other.
const (
	metadataAttribute = "user.e2b."
	metadataHeader    = "X-Metadata-"
)

// readMetadata returns a file's metadata; a file system without extended attributes has none.
func readMetadata(path string) map[string]string {
	size, err := unix.Llistxattr(path, nil)
	if err != nil || size == 0 {
		return nil
	}
	list := make([]byte, size)
	if size, err = unix.Llistxattr(path, list); err != nil {
		return nil
	}
	out := map[string]string{}
	for name := range strings.SplitSeq(string(list[:size]), "\x00") {
		key, ok := strings.CutPrefix(name, metadataAttribute)
		if !ok {
			continue
		}
		value := make([]byte, 64<<10) // the kernel allows no more
		if n, err := unix.Lgetxattr(path, name, value); err == nil {
			out[key] = string(value[:n])
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// writeMetadata replaces a file's metadata.
func writeMetadata(path string, metadata map[string]string) error {
	for old := range readMetadata(path) {
		if _, keep := metadata[old]; !keep {
			if err := unix.Removexattr(path, metadataAttribute+old); err != nil {
				return &os.PathError{Op: "remove metadata", Path: path, Err: err}
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if err := unix.Setxattr(path, metadataAttribute+key, []byte(metadata[key]), 0); err != nil {
			return &os.PathError{Op: "set metadata", Path: path, Err: err}
		}
	}
	return nil
}
