package store

import (
	"os"
	"testing"
)

func TestAgentHome(t *testing.T) {
	s := newStore(t)
	one, err := s.AgentHome("claude", "/srv/My Shop")
	if err != nil || one.Name != "claude-my-shop" {
		t.Fatalf("%+v, %v", one, err)
	}
	if fi, err := os.Stat(one.Dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", fi, err)
	}
	if again, err := s.AgentHome("claude", "/srv/My Shop"); err != nil || *again != *one {
		t.Errorf("%+v, %v", again, err)
	}
	other, err := s.AgentHome("claude", "/opt/my-shop") // of the same name
	if err != nil || other.Name != "claude-my-shop-2" || other.Dir == one.Dir {
		t.Errorf("%+v, %v", other, err)
	}
	if list, err := s.AgentHomes(); err != nil || len(list) != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := one.Remove(); err != nil {
		t.Fatal(err)
	}
	if list, err := s.AgentHomes(); err != nil || len(list) != 1 || list[0] != *other {
		t.Errorf("%+v, %v", list, err)
	}
}
