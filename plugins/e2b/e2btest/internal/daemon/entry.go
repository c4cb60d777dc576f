package daemon

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

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
